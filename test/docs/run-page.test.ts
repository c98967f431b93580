/** The harness itself: a wrong page must fail and name the line. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { commandsOf, modeOf, readPage } from './markdown.ts'
import { missingLines } from './output.ts'
import { runPage } from './run-page.ts'

const root = mkdtempSync(join(tmpdir(), 'eldr-no-clone-'))
afterAll(() => rmSync(root, { recursive: true }))

const fenced = (mark: string, text: string, language = 'sh') =>
  `<!-- ${mark} -->\n\`\`\`${language}\n${text}\n\`\`\`\n`
const run = (...parts: string[]) =>
  runPage({ name: 'page.md', page: readPage(parts.join('\n')), root, timeoutMs: 30_000 })

describe('a page that is run', () => {
  it('keeps variables, files and background jobs from block to block', async () => {
    const wait = 'until [ -s made ]; do sleep 0.05; done; echo "$a and $(cat made)"'
    await expect(
      run(
        fenced('run', 'a=one'),
        fenced('run', '(echo two > made) &'),
        fenced('run', wait),
        fenced('expect', 'one and two', 'text'),
      ),
    ).resolves.toBeUndefined()
  })

  it('fails with the line and output of a failing command', async () => {
    await expect(
      run(fenced('run', 'true'), fenced('run', 'echo seen\nfalse\necho not seen')),
    ).rejects.toThrow(/^page\.md:7: exited with status 1[^]*--- printed:\nseen\n$/)
  })

  it('fails when a line is not printed, and matches any number with any number', async () => {
    const command = fenced('run', 'echo "worker 17   is ready"')
    await expect(run(command, fenced('expect', 'worker 3 is ready', 'text'))).resolves.toBeUndefined()
    await expect(run(command, fenced('expect', 'worker 3 is gone', 'text'))).rejects.toThrow(
      /not printed:\nworker 3 is gone/,
    )
  })

  it('checks the exit status that the mark names', async () => {
    await expect(run(fenced('run: fails with 2', 'exit 2'))).resolves.toBeUndefined()
    await expect(run(fenced('run: fails with 2', 'true'))).rejects.toThrow(/status 0/)
  })

  it('waits for the output of a background block, and fails when it exits without it', async () => {
    const forever = 'echo up; exec sleep 60'
    await expect(
      run(fenced('run: in the background until "up"', forever), fenced('run', 'true')),
    ).resolves.toBeUndefined()
    await expect(run(fenced('run: in the background until "never"', 'echo down'))).rejects.toThrow(
      /exited with status 1/,
    )
  })

  it('writes the files that the page shows, with free ports instead of its own', async () => {
    const parts = [
      fenced('file: a.yaml', 'port: 8000', 'yaml'),
      fenced('run', `cat a.yaml; grep -c '80''00' a.yaml || echo changed`),
    ]
    await expect(run(...parts, fenced('expect', 'port: 8000\nchanged', 'text'))).resolves.toBeUndefined()
  })

  it('is stopped after its timeout', async () => {
    const page = readPage(fenced('run', 'sleep 60'))
    await expect(runPage({ name: 'page.md', page, root, timeoutMs: 300 })).rejects.toThrow(
      /timed out after 0.3 s/,
    )
  })
})

describe('reading a page', () => {
  it('uses a comment only right above its block', () => {
    const page = readPage(
      `${fenced('run', 'a')}\n<!-- not run: it needs a GPU -->\n\nwords\n\n\`\`\`sh\nb\n\`\`\`\n`,
    )
    expect(page.blocks.map(block => modeOf(block)?.kind)).toEqual(['run', undefined])
  })

  it('finds commands, headings, anchors and links, but none in code', () => {
    const page = readPage(
      '# A `b`: c\n\n## A b c\n\n[x](y.md#z) ![p](q.png) `[no](no.md)`\n\n```sh\nnpx eldr demo\nnpm run test:soak\n# [n](n)\n```\n',
    )
    expect([...page.anchors]).toEqual(['a-b-c', 'a-b-c-1'])
    expect(page.links.map(({ target }) => target)).toEqual(['y.md#z', 'q.png'])
    expect(commandsOf(page.blocks[0]!)).toEqual(['demo', 'test:soak'])
  })

  it('lets … match anything within a line', () => {
    expect(missingLines('a … c\nb …\nin …', 'a b c\nin 1.03 s\n')).toEqual(['b …'])
  })
})
