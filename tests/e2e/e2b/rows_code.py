"""``run_code``: kernels that keep what was run in them. Rows of the checklist; see ``rows``."""

import base64

from rows_common import NotHere, dear, row

PNG = b"\x89PNG\r\n\x1a\n"


def _sandbox(w):
    """The one sandbox with kernels of a run."""
    if w.code is None:
        if w.Interpreter is None:
            raise NotHere("no code interpreter")
        # An environment of its own is another way to be made, and a slower one: once is enough.
        envs = {"LEVEL": "sandbox"} if _is_first(w) else None
        w.code = w.Interpreter.create(timeout=600, envs=envs)
        w.made.append(w.code)
    return w.code


def _is_first(w):
    return w.package == "tupper" and not w.is_async


@row
def row_code_keeps_its_variables(w):
    sbx, heard = _sandbox(w), []
    first = sbx.run_code(
        "import sys\nx = 20\nprint('out')\nprint('err', file=sys.stderr)",
        on_stdout=lambda said: heard.append(said.line),
        on_stderr=lambda said: heard.append((said.line, said.error)),
    )
    assert (first.logs.stdout, first.logs.stderr) == (["out\n"], ["err\n"])
    assert sorted(heard, key=str) == [("err\n", True), "out\n"]
    assert (first.text, first.results, first.error) == (None, [], None)
    second = sbx.run_code("x + 1")
    assert second.text == "21"
    assert second.execution_count == first.execution_count + 1
    assert sbx.run_code("'a text'").text == "a text"
    assert sbx.run_code("import os; os.getcwd()").text == "/home/user"
    assert sbx.commands.run("curl -s localhost:49999/health").stdout == "OK"


@row
def row_code_forms_of_results(w):
    shown = []
    made = _sandbox(w).run_code(
        "from IPython.display import HTML, JSON, Markdown, display\n"
        "display(HTML('<b>h</b>'), Markdown('# m'), JSON({'a': 1}))\n"
        "import matplotlib.pyplot as plt\n"
        "plt.plot([1, 2, 3])\nplt.show()\n5",
        on_result=shown.append,
    )
    assert made.error is None
    assert len(shown) == len(made.results) == 5
    html, markdown, data, picture, main = made.results
    assert (html.html, markdown.markdown, data.json) == ("<b>h</b>", "# m", {"a": 1})
    assert base64.b64decode(picture.png).startswith(PNG)
    assert "png" in list(picture.formats())
    assert [each.is_main_result for each in made.results] == [False] * 4 + [True]
    assert (made.text, main.text) == ("5", "5")


@row
def row_code_errors(w):
    sbx, heard = _sandbox(w), []
    made = sbx.run_code("def f():\n    return 1 / 0\nf()", on_error=heard.append)
    assert (made.error.name, made.error.value) == ("ZeroDivisionError", "division by zero")
    assert "return 1 / 0" in made.error.traceback
    assert [each.name for each in heard] == ["ZeroDivisionError"]
    assert sbx.run_code("x = 1\nx").text == "1"
    if _is_first(w):  # once is enough: a kernel takes its time
        ended = sbx.run_code("import os; os._exit(1)")
        assert ended.error.name == "KernelDied"
        assert sbx.run_code("2").text == "2"


@row
def row_code_environment(w):
    sbx = _sandbox(w)
    ask = "import os; os.environ.get('LEVEL'), os.environ.get('ONCE')"
    level = "'sandbox'" if _is_first(w) else "None"
    assert sbx.run_code(ask, envs={"ONCE": "1"}).text == f"({level}, '1')"
    assert sbx.run_code(ask).text == f"({level}, None)"


@row
def row_code_timeout_interrupts(w):
    sbx = _sandbox(w)
    sbx.run_code("kept = 'kept'")
    w.raises("TimeoutException", lambda: sbx.run_code("while True: pass", timeout=1))
    assert sbx.run_code("kept").text == "kept"


@row
def row_code_javascript(w):
    sbx = _sandbox(w)
    made = sbx.run_code(
        "const os = require('os'); let y = await Promise.resolve(40); console.log(typeof os)",
        language="javascript",
    )
    assert (made.logs.stdout, made.error) == (["object\n"], None)
    assert sbx.run_code("y + 2", language="js").text == "42"
    assert sbx.run_code("const n: number = 3; n", language="typescript").text == "3"
    failed = sbx.run_code("throw new TypeError('bad')", language="javascript")
    assert (failed.error.name, failed.error.value) == ("TypeError", "bad")
    w.raises("SandboxException", lambda: sbx.run_code("x", language="cobol"), "cobol")


@dear
@row
def row_code_contexts(w):
    sbx = _sandbox(w)
    sbx.run_code("z = 'default'")
    context = sbx.create_code_context(cwd="/tmp", language="python")
    assert (context.language, context.cwd) == ("python", "/tmp")
    assert sbx.run_code("import os; z = 5; os.getcwd()", context=context).text == "/tmp"
    assert sbx.run_code("z").text == "default"
    if hasattr(w.Interpreter, "list_code_contexts"):
        assert context.id in [each.id for each in sbx.list_code_contexts()]
        if not w.is_async:
            sbx.restart_code_context(context)
            assert sbx.run_code("z", context=context).error.name == "NameError"
        sbx.remove_code_context(context.id)
        assert context.id not in [each.id for each in sbx.list_code_contexts()]
        w.raises("NotFoundException", lambda: sbx.run_code("1", context=context))
