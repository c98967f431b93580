/** Text of a file of results. The large ones are kept compressed: `.json.br` (Brotli), `.csv.gz`. */
import { readFile, writeFile } from 'node:fs/promises'
import { brotliDecompressSync, gunzipSync, gzipSync } from 'node:zlib'

const COMPRESSED = /\.(br|gz)$/
const DECOMPRESS = { br: brotliDecompressSync, gz: gunzipSync }

export async function resultText(file: URL | string): Promise<string> {
  const bytes = await readFile(file)
  const how = COMPRESSED.exec(String(file))?.[1] as keyof typeof DECOMPRESS | undefined
  return (how === undefined ? bytes : DECOMPRESS[how](bytes)).toString('utf8')
}

/** Leaves a file with the same text as it is: another zlib compresses it to other bytes. */
export async function writeCompressed(file: URL, text: string): Promise<void> {
  const saved = await resultText(file).catch(() => undefined)
  if (saved !== text) await writeFile(file, gzipSync(text, { level: 9 }))
}

/** Name of the file as it was written: `x.json` for `x.json.br`. */
export const writtenName = (file: string): string => file.replace(COMPRESSED, '')
