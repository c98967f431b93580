import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdirSync, readFileSync, renameSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { bytesOf, failure, temporaryFolder } from '../../test/trace-support.ts'
import { openSafetensors, withSafetensors } from './safetensors-file.ts'

const folder = temporaryFolder()
afterAll(folder.remove)

const path = join(folder.path, 'good.safetensors')
const matrix = Float32Array.from({ length: 12 }, (_, i) => i / 4)
const good = await bytesOf({
  metadata: { k: 'v' },
  tensors: {
    matrix: { dtype: 'F32', shape: [4, 3], data: matrix },
    half: { dtype: 'F16', shape: [3], data: new Uint16Array([0x3c00, 0xc000, 0x7c00]) },
    brain: { dtype: 'BF16', shape: [2], data: new Uint16Array([0x3f80, 0xc2f7]) },
    long: { dtype: 'I64', shape: [2], data: new BigInt64Array([-5n, 7n]) },
    byte: { dtype: 'U8', shape: [5], data: new Uint8Array([1, 2, 3, 4, 255]) },
    small: { dtype: 'I8', shape: [2], data: new Int8Array([-1, 1]) },
    scalar: { dtype: 'F64', shape: [], data: new Float64Array([0.1]) },
    flags: { dtype: 'BOOL', shape: [2], data: new Uint8Array([0, 1]) },
    nothing: { dtype: 'U16', shape: [3, 0], data: new Uint16Array(0) },
  },
})
writeFileSync(path, good)

describe('openSafetensors', () => {
  it('returns each type in its typed array, half floats as bits', async () => {
    await withSafetensors(path, async file => {
      expect(file.metadata).toEqual({ k: 'v' })
      expect(file.size).toBe(good.length)
      expect(await file.read('matrix')).toEqual(matrix)
      expect(await file.read('half')).toEqual(new Uint16Array([0x3c00, 0xc000, 0x7c00]))
      expect(await file.read('long')).toEqual(new BigInt64Array([-5n, 7n]))
      expect(await file.read('scalar')).toEqual(new Float64Array([0.1]))
      expect(await file.read('flags')).toEqual(new Uint8Array([0, 1]))
      expect(await file.read('nothing')).toEqual(new Uint16Array(0))
    })
  })

  it('reads rows of the first dimension, including none, and rejects rows out of range', async () => {
    await withSafetensors(path, async file => {
      expect(await file.readRows('matrix', 1, 3)).toEqual(matrix.slice(3, 9))
      expect(await file.readRows('matrix', 4, 4)).toEqual(new Float32Array(0))
      expect(await file.readRows('nothing', 0, 3)).toEqual(new Uint16Array(0))
      for (const [from, to] of [
        [-1, 1],
        [0, 5],
        [3, 2],
        [0, 1.5],
        [NaN, 1],
      ] as const) {
        await expect(file.readRows('matrix', from, to)).rejects.toThrow(RangeError)
      }
      await expect(file.readRows('scalar', 0, 1)).rejects.toThrow(RangeError)
    })
  })

  it('converts every type to numbers', async () => {
    await withSafetensors(path, async file => {
      expect(await file.readFloat32('half')).toEqual(new Float32Array([1, -2, Infinity]))
      expect(await file.readFloat32('brain')).toEqual(new Float32Array([1, -123.5]))
      expect(await file.readFloat32('byte', 3)).toEqual(new Float32Array([4, 255]))
      expect(await file.readFloat32('small', 0, 1)).toEqual(new Float32Array([-1]))
      expect(await file.readFloat32('long')).toEqual(new Float32Array([-5, 7]))
      expect(await file.readFloat32('scalar')).toEqual(new Float32Array([0.1]))
      expect(await file.readFloat32('matrix', 2)).toEqual(matrix.slice(6))
    })
  })

  it('gives the SHA-256 of the whole file', async () => {
    const expected = createHash('sha256').update(good).digest('hex')
    expect(await withSafetensors(path, file => file.sha256())).toBe(expected)
  })

  it('reports which tensor is missing or has another type', async () => {
    await withSafetensors(path, async file => {
      const missing = await failure(path, () => file.read('centroids'))
      expect(missing.code).toBe('ELDR_TENSOR_MISSING')
      expect(missing.message).toContain('centroids')
      const type = await failure(path, () => file.readAs('half', 'F32'))
      expect(type.code).toBe('ELDR_TENSOR_BAD_TYPE')
      expect(type.message).toContain('F16 for "half", expected F32')
      expect(await file.readAs('matrix', 'F32')).toEqual(matrix)
    })
  })

  it('rejects anything but a regular file without blocking on it', async () => {
    const fifo = join(folder.path, 'fifo')
    execFileSync('mkfifo', [fifo])
    mkdirSync(join(folder.path, 'folder'))
    symlinkSync(join(folder.path, 'nowhere'), join(folder.path, 'dangling'))
    for (const name of ['fifo', 'folder', 'dangling', 'absent', 'good.safetensors/below', 'nul\0byte']) {
      const bad = join(folder.path, name)
      expect(await failure(bad, () => openSafetensors(bad))).toHaveProperty('code', 'ELDR_FILE_UNREADABLE')
    }
    expect(await failure('/dev/zero', () => openSafetensors('/dev/zero'))).toHaveProperty(
      'code',
      'ELDR_FILE_UNREADABLE',
    )
  })

  it('reports that the file shrank while it was open', async () => {
    const shrinking = join(folder.path, 'shrinking')
    writeFileSync(shrinking, good)
    await withSafetensors(shrinking, async file => {
      truncateSync(shrinking, file.info('matrix').begin + 5)
      expect(await failure(shrinking, () => file.read('matrix'))).toHaveProperty(
        'code',
        'ELDR_FILE_TRUNCATED',
      )
      expect(await failure(shrinking, () => file.readRows('matrix', 1, 2))).toHaveProperty(
        'code',
        'ELDR_FILE_TRUNCATED',
      )
      expect(await failure(shrinking, () => file.sha256())).toHaveProperty('code', 'ELDR_FILE_TRUNCATED')
    })
  })

  it('keeps reading the opened file when another replaces its path', async () => {
    const replaced = join(folder.path, 'replaced')
    writeFileSync(replaced, good)
    await withSafetensors(replaced, async file => {
      writeFileSync(`${replaced}.new`, 'something else')
      renameSync(`${replaced}.new`, replaced)
      expect(await file.read('matrix')).toEqual(matrix)
    })
    expect(readFileSync(replaced, 'utf8')).toBe('something else')
  })

  it('opens a sparse file larger than memory, and refuses to load such a tensor at once', async () => {
    const huge = join(folder.path, 'huge')
    const bytes = 2 ** 43 // 8 TiB, of which none is stored on disk
    const header = `{"a":{"dtype":"U8","shape":[${2 ** 20},${2 ** 23}],"data_offsets":[0,${bytes}]}}`
    const length = Buffer.alloc(8)
    length.writeBigUInt64LE(BigInt(header.length))
    writeFileSync(huge, Buffer.concat([length, Buffer.from(header)]))
    truncateSync(huge, 8 + header.length + bytes)
    await withSafetensors(huge, async file => {
      expect(await failure(huge, () => file.read('a'))).toHaveProperty('code', 'ELDR_FILE_UNREADABLE')
      expect((await file.readRows('a', 2 ** 20 - 1, 2 ** 20)).length).toBe(2 ** 23)
    })
  })

  it('closes the file in every case', async () => {
    const closed = await withSafetensors(path, async file => file)
    expect(await failure(path, () => closed.read('matrix'))).toHaveProperty('code', 'ELDR_FILE_UNREADABLE')
    await expect(withSafetensors(path, () => Promise.reject(new Error('mine')))).rejects.toThrow('mine')
  })
})
