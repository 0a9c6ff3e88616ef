"""A sandbox that is saved again and again: nobody listens for a moment, each time anew."""

import http.server
import socketserver
import threading

import pytest

from tupper.sdk._shared.info import Grant
from tupper.sdk._shared.link import Ask, LinkError, Trouble
from tupper.sdk._sync.agent import TRIES, Agent


class Healthy(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass

    def address_string(self):
        return "local"


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


class Saving:
    """The background process of a sandbox that is saved so many times before it is left alone."""

    def __init__(self, path, times):
        self.path, self.times, self.asked = path, times, 0

    def is_there(self, _):
        self.asked += 1
        if self.asked == self.times:
            self.server = Server(str(self.path), Healthy)
            threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return True

    def close(self):
        if self.asked >= self.times:
            self.server.shutdown()
            self.server.server_close()


@pytest.fixture
def saved(tmp_path):
    made = []

    def make(times):
        path = tmp_path / "agent.sock"
        control = Saving(path, times)
        agent = Agent(control, Grant("i0", socket=str(path)), 5.0)
        made.extend((agent, control))
        return agent

    yield make
    for each in made:
        each.close()


def test_a_request_meets_one_save_after_the_other(saved):
    agent = saved(3)
    reply = agent.open(Ask("GET", "/health", timeout_s=5.0))
    assert reply.status == 204
    reply.close()


def test_it_is_well_when_it_is_left_alone(saved):
    assert saved(3).is_well() is True


def test_it_is_not_waited_for_without_end(saved):
    agent = saved(1000)
    with pytest.raises(LinkError) as caught:
        agent.is_well()
    assert caught.value.trouble is Trouble.REFUSED
    assert agent._control.asked == TRIES - 1
