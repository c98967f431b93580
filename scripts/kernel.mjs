// Compiles src/math/kernel.wat into src/math/kernel-bytes.ts. Run it as `npm run kernel` after a change to the kernel.
import { readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import wabt from 'wabt'

const math = join(dirname(fileURLToPath(import.meta.url)), '..', 'src', 'math')

/** The text of kernel-bytes.ts for the kernel as it is now. */
export async function kernelBytesSource() {
  const { parseWat } = await wabt()
  const module = parseWat('kernel.wat', readFileSync(join(math, 'kernel.wat'), 'utf8'), { simd: true, bulk_memory: true })
  const { buffer } = module.toBinary({ write_debug_names: false })
  const base64 = Buffer.from(buffer).toString('base64')
  return `// Made from kernel.wat by \`npm run kernel\`: ${buffer.length} bytes of WebAssembly. A test fails when the two differ.\nexport const KERNEL_BASE64 =\n  '${base64}'\n`
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeFileSync(join(math, 'kernel-bytes.ts'), await kernelBytesSource())
