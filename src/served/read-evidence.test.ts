import { rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { brotliCompressSync } from 'node:zlib'
import { afterAll, afterEach, describe, expect, it } from 'vitest'
import { envelope, servedResult } from '../../test/served-support.ts'
import { temporaryFolder } from '../../test/trace-support.ts'
import { readEvidence } from './read-evidence.ts'
import { completeRuns, type ResultOf } from './result-file.ts'

const folder = temporaryFolder()
afterAll(() => folder.remove())
const saved: string[] = []
afterEach(() => saved.splice(0).forEach(file => rmSync(file)))
const save = (name: string, bytes: string | Uint8Array) => {
  saved.push(join(folder.path, name))
  writeFileSync(saved.at(-1)!, bytes)
}
const read = () => readEvidence(pathToFileURL(`${folder.path}/`))
const text = JSON.stringify(servedResult())

describe('the folder of results', () => {
  it('is read, compressed or not', async () => {
    save('served-k4-b10.json.br', brotliCompressSync(text))
    expect((await read()).results.map(({ name }) => name)).toEqual(['served-k4-b10'])
  })

  it('calls the paper’s rule band, also in results from when it was called eldr', async () => {
    save('served-k4-b10.json', text)
    const [result] = (await read()).results as ResultOf<'served'>[]
    expect(new Set(completeRuns(result!).map(({ policy }) => policy))).toEqual(new Set(['jsq', 'band']))
  })

  it('refuses two files of one name', async () => {
    save('served-k4-b10.json', text)
    save('served-k4-b10.json.br', brotliCompressSync(text))
    await expect(read()).rejects.toThrow(
      'served-k4-b10.json and served-k4-b10.json.br are both results of one name',
    )
  })

  it.each([
    ['served-k4-b10.json', text.slice(0, -9)],
    ['served-k4-b10.json.br', brotliCompressSync(text).subarray(0, 100)],
    ['served-k4-b10.json.br', text],
  ])('names a damaged file: %s', async (name, bytes) => {
    save(name, bytes)
    await expect(read()).rejects.toThrow(`${name}: damaged, restore or delete it`)
  })

  it('refuses a result of a kind that it does not know', async () => {
    save('x.json', JSON.stringify(envelope('capture-costs', 'x')))
    await expect(read()).rejects.toThrow('x.json: kind')
  })
})
