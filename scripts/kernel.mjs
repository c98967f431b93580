// Compiles each kernel.wat of src/ into the kernel-bytes.ts beside it. Run it as `npm run kernel` after a change to a kernel.
import { readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import wabt from 'wabt'

const src = join(dirname(fileURLToPath(import.meta.url)), '..', 'src')
/** Folders with a kernel. */
const FOLDERS = ['math', 'worker/tiny']

/** The text of a folder's kernel-bytes.ts for its kernel as it is now. */
export async function kernelBytesSource(folder = 'math') {
  const { parseWat } = await wabt()
  const module = parseWat('kernel.wat', readFileSync(join(src, folder, 'kernel.wat'), 'utf8'), {
    simd: true,
    bulk_memory: true,
  })
  const { buffer } = module.toBinary({ write_debug_names: false })
  const base64 = Buffer.from(buffer).toString('base64')
  return `// Made from kernel.wat by \`npm run kernel\`: ${buffer.length} bytes of WebAssembly. A test fails when the two differ.\nexport const KERNEL_BASE64 =\n  '${base64}'\n`
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  for (const folder of FOLDERS)
    writeFileSync(join(src, folder, 'kernel-bytes.ts'), await kernelBytesSource(folder))
}
