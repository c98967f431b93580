import { writeFileSync } from 'node:fs'
import { open } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { temporaryFolder } from '../../test/trace-support.ts'
import { jsonlLines, openLines, sha256 } from './jsonl-lines.ts'

const folder = temporaryFolder()
afterAll(() => folder.remove())

async function linesOf(text: string) {
  const path = join(folder.path, 'lines')
  writeFileSync(path, text)
  const handle = await open(path, 'r')
  const hash = sha256()
  const lines = []
  for await (const { number, at, bytes } of jsonlLines(handle, hash)) lines.push({ number, at, text: bytes.toString('utf8') })
  await handle.close()
  return { lines, hash: hash.digest('hex') }
}

describe('lines of a file', () => {
  it('come with number and place, blank ones left out and counted, with a last new line or without', async () => {
    const expected = [{ number: 1, at: 0, text: 'a' }, { number: 4, at: 6, text: 'é\r' }, { number: 5, at: 10, text: 'c' }] // prettier-ignore
    expect((await linesOf('a\n\n \r\né\r\nc')).lines).toEqual(expected)
    expect((await linesOf('a\n\n \r\né\r\nc\n')).lines).toEqual(expected)
    expect((await linesOf('')).lines).toEqual([])
    expect((await linesOf('\n \n')).lines).toEqual([])
  })

  it('may be longer than what is read at once, wherever reading stops', async () => {
    const texts = ['x'.repeat((1 << 20) - 1), 'y'.repeat(3 << 20), 'ü'.repeat(1 << 19), 'z']
    const { lines, hash } = await linesOf(texts.join('\n'))
    expect(lines.map(({ text }) => text.length)).toEqual(texts.map(({ length }) => length))
    expect(lines.every(({ text }, i) => text === texts[i])).toBe(true)
    expect(lines.map(({ at }) => at)).toEqual([0, 1 << 20, (1 << 20) + (3 << 20) + 1, (5 << 20) + 2])
    expect(hash).toBe(sha256().update(texts.join('\n')).digest('hex'))
  })

  it('of what is no file are refused', async () => {
    await expect(openLines(folder.path)).rejects.toThrow(/ELDR_FILE_UNREADABLE/)
    await expect(openLines(join(folder.path, 'nowhere'))).rejects.toThrow(/ELDR_FILE_UNREADABLE/)
  })
})
