// A safetensors writer for tensors that do not fit in memory: the header first, then rows in any order. It
// intentionally shares no code with the product.
import { closeSync, openSync, writeSync } from 'node:fs'

const BYTES = { U8: 1, U16: 2, F16: 2, F32: 4 }

/**
 * Opens `file` and writes the header for `tensors` ({name: {dtype, shape}}, data in that order). `put(name,
 * element, array)` then writes a typed array at an element's position; all elements must be put before
 * `close`.
 */
export function createSafetensors(file, tensors, metadata) {
  const header = { __metadata__: metadata }
  let end = 0
  for (const [name, { dtype, shape }] of Object.entries(tensors)) {
    const from = end
    end += shape.reduce((product, size) => product * size, BYTES[dtype])
    header[name] = { dtype, shape, data_offsets: [from, end] }
  }
  const text = Buffer.from(JSON.stringify(header))
  const start = Math.ceil((8 + text.length) / 8) * 8
  const prefix = Buffer.alloc(start, ' ')
  prefix.writeBigUInt64LE(BigInt(start - 8))
  text.copy(prefix, 8)
  const fd = openSync(file, 'w')
  writeSync(fd, prefix)

  return {
    put(name, element, array) {
      const { dtype, data_offsets } = header[name]
      if (array.BYTES_PER_ELEMENT !== BYTES[dtype]) throw new TypeError(`${name} is ${dtype}`)
      const bytes = Buffer.from(array.buffer, array.byteOffset, array.byteLength)
      let at = start + data_offsets[0] + element * BYTES[dtype]
      for (let done = 0; done < bytes.length;) {
        const written = writeSync(fd, bytes, done, bytes.length - done, at)
        done += written
        at += written
      }
    },
    close: () => closeSync(fd),
  }
}

const float = new Float32Array(1)
const bits = new Uint32Array(float.buffer)

/**
 * Bits of the half-precision float nearest to `value`. Below the normal range (2^-14) it rounds to zero,
 * which is enough for traces.
 */
export function half(value) {
  float[0] = value
  const sign = (bits[0] >>> 16) & 0x8000
  const magnitude = bits[0] & 0x7fffffff
  if (magnitude >= 0x47800000) return sign | 0x7c00
  if (magnitude < 0x38800000) return sign
  const rounded = magnitude + 0xfff + ((magnitude >>> 13) & 1) - 0x38000000
  return sign | (rounded >>> 13)
}
