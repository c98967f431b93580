/** Text of a file of results. The large ones are kept compressed (`.json.br`, Brotli). */
import { readFile } from 'node:fs/promises'
import { brotliDecompressSync } from 'node:zlib'

const COMPRESSED = /\.br$/

export async function resultText(file: URL | string): Promise<string> {
  const bytes = await readFile(file)
  return (COMPRESSED.test(String(file)) ? brotliDecompressSync(bytes) : bytes).toString('utf8')
}

/** Name of the file as it was written: `x.json` for `x.json.br`. */
export const writtenName = (file: string): string => file.replace(COMPRESSED, '')
