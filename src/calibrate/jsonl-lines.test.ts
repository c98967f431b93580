import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { open } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { temporaryFolder } from '../../test/trace-support.ts'
import { jsonlLines, openLines, sha256 } from './jsonl-lines.ts'

const folder = temporaryFolder()
afterAll(() => folder.remove())

async function linesOf(text: string, maxBytes = 1 << 24) {
  const path = join(folder.path, 'lines')
  writeFileSync(path, text)
  const handle = await open(path, 'r')
  const hash = sha256()
  const lines = []
  for await (const { number, at, bytes } of jsonlLines(handle, { path, maxBytes }, hash))
    lines.push({ number, at, text: bytes.toString('utf8') })
  await handle.close()
  return { lines, hash: hash.digest('hex') }
}

describe('jsonlLines', () => {
  it('yields lines with number and position; blank lines count but are left out, with or without a final newline', async () => {
    const expected = [
      { number: 1, at: 0, text: 'a' },
      { number: 4, at: 6, text: 'é\r' },
      { number: 5, at: 10, text: 'c' },
    ]
    expect((await linesOf('a\n\n \r\né\r\nc')).lines).toEqual(expected)
    expect((await linesOf('a\n\n \r\né\r\nc\n')).lines).toEqual(expected)
    expect((await linesOf('')).lines).toEqual([])
    expect((await linesOf('\n \n')).lines).toEqual([])
  })

  it('yields lines longer than a chunk, wherever chunks end', async () => {
    const texts = ['x'.repeat((1 << 20) - 1), 'y'.repeat(3 << 20), 'ü'.repeat(1 << 19), 'z']
    const { lines, hash } = await linesOf(texts.join('\n'))
    expect(lines.map(({ text }) => text.length)).toEqual(texts.map(({ length }) => length))
    expect(lines.every(({ text }, i) => text === texts[i])).toBe(true)
    expect(lines.map(({ at }) => at)).toEqual([0, 1 << 20, (1 << 20) + (3 << 20) + 1, (5 << 20) + 2])
    expect(hash).toBe(sha256().update(texts.join('\n')).digest('hex'))
  })

  it('leaves out a byte order mark', async () => {
    expect((await linesOf('\ufeffa\nb')).lines).toEqual([
      { number: 1, at: 3, text: 'a' },
      { number: 2, at: 5, text: 'b' },
    ])
    expect((await linesOf('\ufeff\nb')).lines).toEqual([{ number: 2, at: 4, text: 'b' }])
  })

  it('rejects lines that are too long, with their number', async () => {
    expect((await linesOf('a\n1234\n', 4)).lines).toHaveLength(2)
    await expect(linesOf('a\n12345\nb', 4)).rejects.toThrow(
      /more than 4 bytes in line 2.*ELDR_FILE_WRONG_KIND/,
    )
    await expect(linesOf(`a\n${'x'.repeat(3 << 20)}`, 2 << 20)).rejects.toThrow(
      /more than 2097152 bytes in line 2/,
    )
  })

  it('rejects a pipe instead of waiting for its writer', async () => {
    const pipe = join(folder.path, 'pipe')
    execFileSync('mkfifo', [pipe])
    await expect(openLines(pipe)).rejects.toThrow(/ELDR_FILE_UNREADABLE/)
  })

  it('rejects paths that are not regular files', async () => {
    await expect(openLines(folder.path)).rejects.toThrow(/ELDR_FILE_UNREADABLE/)
    await expect(openLines(join(folder.path, 'nowhere'))).rejects.toThrow(/ELDR_FILE_UNREADABLE/)
  })
})
