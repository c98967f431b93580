// Compiles each kernel.wat in src/ into the kernel-bytes.ts beside it. Run `npm run kernel` after changing a
// kernel.
import { readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import wabt from 'wabt'

const src = join(dirname(fileURLToPath(import.meta.url)), '..', 'src')
/** Folders with a kernel. */
const FOLDERS = ['math', 'worker/tiny']

/** Contents of kernel-bytes.ts for the current kernel of a folder. */
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
