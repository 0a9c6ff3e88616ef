// The published JavaScript SDK, unmodified, against a server of ours. Prints a line of JSON a row.
import { createRequire } from 'node:module'
import { fileURLToPath, pathToFileURL } from 'node:url'
import assert from 'node:assert/strict'
import { dirname } from 'node:path'
import { randomUUID } from 'node:crypto'

const require = createRequire(process.env.ROWS_MODULES + '/')
const e2b = await import(pathToFileURL(require.resolve('e2b')).href)
const Sandbox = e2b.Sandbox ?? e2b.default.Sandbox
const pause = ms => new Promise(done => setTimeout(done, ms))

async function until(condition, limit = 20000) {
  const end = Date.now() + limit
  for (;;) {
    const found = await condition()
    if (found) return found
    assert(Date.now() < end, 'the condition did not come true')
    await pause(50)
  }
}

const rows = {
  async commands(sbx) {
    const result = await sbx.commands.run('echo hello; echo oops >&2; pwd; sudo id -u')
    assert.equal(result.stdout, 'hello\n/home/user\n0\n')
    assert.equal(result.stderr, 'oops\n')
  },
  async exit_error(sbx) {
    await assert.rejects(sbx.commands.run('exit 7'), error =>
      error instanceof e2b.CommandExitError && error.exitCode === 7)
  },
  async timeout(sbx) {
    await assert.rejects(sbx.commands.run('sleep 10', { timeoutMs: 1000 }), e2b.TimeoutError)
  },
  async background_stdin(sbx) {
    const handle = await sbx.commands.run('cat', { background: true, stdin: true })
    await sbx.commands.sendStdin(handle.pid, 'text')
    await sbx.commands.closeStdin(handle.pid)
    assert.equal((await handle.wait()).stdout, 'text')
    assert.equal(await sbx.commands.kill(999999), false)
  },
  async envs(sbx) {
    const run = options => sbx.commands.run('echo $LEVEL', options)
    assert.equal((await run()).stdout, 'sandbox\n')
    assert.equal((await run({ envs: { LEVEL: 'command' } })).stdout, 'command\n')
  },
  async files(sbx) {
    const info = await sbx.files.write('js.txt', 'text ä')
    assert.equal(info.path, '/home/user/js.txt')
    assert.equal(await sbx.files.read('js.txt'), 'text ä')
    await sbx.files.write([{ path: 'many/1', data: '1' }, { path: 'many/2', data: '2' }])
    assert.deepEqual((await sbx.files.list('many')).map(each => each.name), ['1', '2'])
    await sbx.files.write('empty', '')
    assert.equal(await sbx.files.read('empty'), '')
    assert.equal(await sbx.files.makeDir('folder'), true)
    assert.equal(await sbx.files.makeDir('folder'), false)
    await sbx.files.rename('js.txt', 'moved.txt')
    assert.equal(await sbx.files.exists('js.txt'), false)
    await assert.rejects(sbx.files.read('js.txt'), e2b.NotFoundError)
    assert.equal((await sbx.files.read('/proc/sys/kernel/random/boot_id')).trim().length, 36)
  },
  async watch(sbx) {
    const seen = []
    await sbx.files.makeDir('watched')
    const handle = await sbx.files.watchDir('watched', event => void seen.push(event))
    await sbx.files.write('watched/new.txt', 'small')
    await until(() => seen.length >= 3)
    assert.deepEqual(seen.map(event => event.type), ['create', 'chmod', 'write'])
    await handle.stop()
  },
  async pty(sbx) {
    let shown = ''
    const decoder = new TextDecoder()
    const handle = await sbx.pty.create({
      cols: 80, rows: 24, envs: { ABC: '123' }, onData: data => void (shown += decoder.decode(data)),
    })
    await sbx.pty.sendInput(handle.pid, new TextEncoder().encode('echo $ABC-$TERM; exit\n'))
    assert.equal((await handle.wait()).exitCode, 0)
    assert(shown.includes('123-xterm-256color'))
  },
  async links(sbx) {
    await sbx.files.write('linked.txt', 'through a link')
    const answer = await fetch(await sbx.downloadUrl('linked.txt'))
    assert.equal(await answer.text(), 'through a link')
    const form = new FormData()
    form.append('file', new Blob(['uploaded']), 'x.txt')
    assert.equal((await fetch(await sbx.uploadUrl('up.txt'), { method: 'POST', body: form })).status, 200)
    assert.equal(await sbx.files.read('up.txt'), 'uploaded')
  },
  async life(sbx) {
    const info = await sbx.getInfo()
    assert.equal(info.sandboxId, sbx.sandboxId)
    assert.deepEqual(info.metadata, { kind: 'js' })
    const other = await Sandbox.connect(sbx.sandboxId, { timeoutMs: 1000 })
    assert.equal((await other.getInfo()).endAt.getTime(), info.endAt.getTime())
    await sbx.setTimeout(600_000)
    assert((await sbx.getInfo()).endAt > info.endAt)
    const pages = Sandbox.list({ query: { metadata: { kind: 'js' } }, limit: 1 })
    assert.deepEqual((await pages.nextItems()).map(each => each.sandboxId), [sbx.sandboxId])
    assert.equal(pages.hasNext, false)
    assert.equal(await Sandbox.kill('i' + '0'.repeat(20)), false)
  },
  async pause_snapshot_fork(sbx) {
    const made = await Sandbox.create({ timeoutMs: 300_000 })
    try {
      await made.files.write('f.txt', 'first')
      const sleeper = await made.commands.run('sleep 6000', { background: true })
      const kept = await made.createSnapshot()
      assert.equal(await made.pause(), true)
      assert.equal(await made.isRunning(), false)
      assert.equal(await made.pause(), false)
      await made.connect()
      assert.equal(await made.files.read('f.txt'), 'first')
      assert((await made.commands.list()).some(each => each.pid === sleeper.pid))
      const other = await Sandbox.create(kept.snapshotId)
      assert.equal(await other.files.read('f.txt'), 'first')
      await other.kill()
      const forks = await made.fork({ count: 2 })
      assert.equal(new Set([made.sandboxId, ...forks.map(each => each.sandboxId)]).size, 3)
      for (const each of forks) {
        assert.equal(await each.files.read('f.txt'), 'first')
        await each.kill()
      }
      assert.equal(await Sandbox.deleteSnapshot(kept.snapshotId), true)
      assert.equal(await Sandbox.deleteSnapshot(kept.snapshotId), false)
    } finally {
      await made.kill()
    }
  },
  async templates() {
    const name = `t-${randomUUID().slice(0, 8)}`
    const template = e2b.Template({ fileContextPath: dirname(fileURLToPath(import.meta.url)) })
      .fromTemplate('minimal')
      .setEnvs({ GREETING: 'hello' })
      .copy('smoke.mjs', '/code/')
      .runCmd('echo $GREETING > out.txt')
      .setStartCmd('touch started; sleep 3600', e2b.waitForFile('/home/user/started'))
    const lines = []
    const info = await e2b.Template.build(template, name, {
      tags: ['v2'], memoryMB: 300, onBuildLogs: line => void lines.push(line.message),
    })
    assert.deepEqual(info.tags, ['v2'])
    assert(lines.some(line => line.includes('RUN echo $GREETING')))
    const made = await Sandbox.create(`${name}:v2`, { timeoutMs: 60_000 })
    const shown = await made.commands.run('cat out.txt; ls started /code')
    assert.equal(shown.stdout, 'hello\nstarted\n\n/code:\nsmoke.mjs\n')
    await made.kill()
    assert.equal(await e2b.Template.exists(`${name}:v2`), true)
    assert.equal(await e2b.Template.exists('no-such-template'), false)
    await e2b.Template.assignTags(`${name}:v2`, ['default', 'prod'])
    await e2b.Template.removeTags(name, 'prod')
    assert.deepEqual((await e2b.Template.getTags(name)).map(each => each.tag), ['default', 'v2'])
    const failing = e2b.Template().fromTemplate('minimal').runCmd('exit 7')
    await assert.rejects(e2b.Template.build(failing, name), error =>
      error instanceof e2b.BuildError && /exit status 7/.test(error.message))
  },
  async volumes() {
    const volume = await e2b.Volume.create(`v-${randomUUID().slice(0, 8)}`)
    await volume.writeFile('/d/f.txt', 'from outside', { force: true })
    const made = await Sandbox.create({ timeoutMs: 60_000, volumeMounts: { '/mnt/data': volume } })
    const shown = await made.commands.run('cat /mnt/data/d/f.txt; echo inside > /mnt/data/g')
    assert.equal(shown.stdout, 'from outside')
    assert.equal(await volume.readFile('/g'), 'inside\n')
    assert.deepEqual((await volume.list('/')).map(each => each.path), ['/d', '/g'])
    assert.equal(await volume.exists('/none'), false)
    await assert.rejects(e2b.Volume.destroy(volume.volumeId), e2b.VolumeError)
    await made.kill()
    assert.equal(await e2b.Volume.destroy(volume.volumeId), true)
    assert.equal(await e2b.Volume.destroy(volume.volumeId), false)
  },
  async private_ports() {
    const made = await Sandbox.create({ timeoutMs: 60_000, network: { allowPublicTraffic: false } })
    await made.commands.run('python3 -m http.server 8000', { background: true, timeoutMs: 0 })
    const ask = headers => fetch(process.env.E2B_API_URL, {
      headers: { 'E2b-Sandbox-Id': made.sandboxId, 'E2b-Sandbox-Port': '8000', ...headers },
    })
    assert.equal((await ask({})).status, 403)
    const right = { 'e2b-traffic-access-token': made.trafficAccessToken }
    await until(async () => (await ask(right)).status === 200)
    await made.kill()
  },
  async code() {
    const { Sandbox: Interpreter } = await import(
      pathToFileURL(require.resolve('@e2b/code-interpreter')).href)
    const made = await Interpreter.create({ timeoutMs: 120_000 })
    const lines = []
    const first = await made.runCode('x = 20\nprint("out")\nx + 1', {
      onStdout: said => void lines.push(said.line),
    })
    assert.equal(first.text, '21')
    assert.deepEqual([first.logs.stdout, lines], [['out\n'], ['out\n']])
    assert.equal((await made.runCode('x + 2')).text, '22')
    assert.equal((await made.runCode('1/0')).error.name, 'ZeroDivisionError')
    assert.equal((await made.runCode('await 5', { language: 'javascript' })).text, '5')
    const context = await made.createCodeContext({ cwd: '/tmp', language: 'python' })
    assert.equal((await made.runCode('import os; os.getcwd()', { context })).text, '/tmp')
    await made.kill()
  },
  async killed_in_flight(sbx) {
    const running = sbx.commands.run('echo begun; sleep 60', { onStdout: () => void sbx.kill() })
    await assert.rejects(running, error => /end of life while the request was in flight/.test(error.message))
    assert.equal(await sbx.isRunning(), false)
    const answer = await fetch(process.env.E2B_API_URL, {
      headers: { 'E2b-Sandbox-Id': sbx.sandboxId, 'E2b-Sandbox-Port': '8000' },
    })
    assert.equal(answer.status, 502)
    assert.deepEqual(await answer.json(),
      { sandboxId: sbx.sandboxId, message: 'The sandbox was not found', code: 502 })
  },
}

const { version } = require('e2b/package.json')
console.log(JSON.stringify({ version }))
const sbx = await Sandbox.create({ timeoutMs: 300_000, metadata: { kind: 'js' }, envs: { LEVEL: 'sandbox' } })
for (const [row, run] of Object.entries(rows)) {
  try {
    await run(sbx)
    console.log(JSON.stringify({ row, outcome: 'passed', detail: '' }))
  } catch (error) {
    console.log(JSON.stringify({ row, outcome: 'failed', detail: String(error.stack) }))
  }
}
await sbx.kill()
process.exit(0)
