import {
  chmodSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeEach, describe, expect, it } from 'vitest'
import { failure, temporaryFolder } from '../../test/trace-support.ts'
import { writeFileAtomic } from './write-atomic.ts'

const root = temporaryFolder()
afterAll(root.remove)

let folder = ''
let path = ''
let runs = 0
beforeEach(() => {
  folder = join(root.path, `run-${runs++}`)
  mkdirSync(folder)
  path = join(folder, 'report.html')
  writeFileSync(path, 'old')
})

describe('writeFileAtomic', () => {
  it('replaces a file and creates a new one, from text, bytes and an asynchronous source', async () => {
    await writeFileAtomic(path, ['new ', Buffer.from('bytes'), ' é'])
    expect(readFileSync(path, 'utf8')).toBe('new bytes é')
    await writeFileAtomic(join(folder, 'second'), later())
    expect(readFileSync(join(folder, 'second'), 'utf8')).toBe('ab')
    expect(readdirSync(folder).sort()).toEqual(['report.html', 'second'])
  })

  it('keeps the old file and leaves no other if the source fails half-way, and passes its error on', async () => {
    await expect(
      writeFileAtomic(
        path,
        broken(() => {
          throw new Error('the source broke')
        }),
      ),
    ).rejects.toThrow('the source broke')
    expect(readFileSync(path, 'utf8')).toBe('old')
    expect(readdirSync(folder)).toEqual(['report.html'])
  })

  it('reports that it cannot write if the folder disappears half-way', async () => {
    const sabotage = broken(() => rmSync(folder, { recursive: true }))
    expect(await failure(path, () => writeFileAtomic(path, sabotage))).toHaveProperty(
      'code',
      'ELDR_FILE_UNWRITABLE',
    )
    expect(readdirSync(root.path)).not.toContain(`run-${runs - 1}`)
  })

  it('keeps the old file and leaves no other if the target becomes a folder half-way', async () => {
    const sabotage = broken(() => {
      rmSync(path)
      mkdirSync(path)
      writeFileSync(join(path, 'inside'), '')
    })
    expect(await failure(path, () => writeFileAtomic(path, sabotage))).toHaveProperty(
      'code',
      'ELDR_FILE_UNWRITABLE',
    )
    expect(readdirSync(folder)).toEqual(['report.html'])
    expect(readdirSync(path)).toEqual(['inside'])
  })

  it('rejects a missing folder, a folder in place of the file, and a device', async () => {
    for (const bad of [join(folder, 'no', 'where'), folder, join(path, 'below'), '/dev/null']) {
      expect(await failure(bad, () => writeFileAtomic(bad, ['x']))).toHaveProperty(
        'code',
        'ELDR_FILE_UNWRITABLE',
      )
    }
    expect(statSync('/dev/null').isFile()).toBe(false)
    expect(readdirSync(folder)).toEqual(['report.html'])
  })

  it.skipIf(process.getuid?.() === 0)('rejects a folder that this user may not write to', async () => {
    chmodSync(folder, 0o555)
    expect(await failure(path, () => writeFileAtomic(path, ['x']))).toHaveProperty(
      'code',
      'ELDR_FILE_UNWRITABLE',
    )
    chmodSync(folder, 0o755)
    expect(readFileSync(path, 'utf8')).toBe('old')
  })

  it('writes to the target of a symbolic link and keeps the link', async () => {
    const link = join(folder, 'link')
    symlinkSync('report.html', link)
    await writeFileAtomic(link, ['new'])
    expect(readlinkSync(link)).toBe('report.html')
    expect(readFileSync(path, 'utf8')).toBe('new')
  })

  it('never writes into the old file itself', async () => {
    linkSync(path, join(folder, 'same file'))
    await writeFileAtomic(path, ['new'])
    expect(readFileSync(join(folder, 'same file'), 'utf8')).toBe('old')
  })

  it('allows concurrent writers of one path: one of them is last, complete', async () => {
    const texts = Array.from({ length: 20 }, (_, i) => String(i).repeat(10_000))
    await Promise.all(texts.map(text => writeFileAtomic(path, [text.slice(0, 5_000), text.slice(5_000)])))
    expect(texts).toContain(readFileSync(path, 'utf8'))
    expect(readdirSync(folder)).toEqual(['report.html'])
  })

  it('accepts a name as long as the file system does', async () => {
    const long = join(folder, 'x'.repeat(255))
    await writeFileAtomic(long, ['new'])
    expect(readFileSync(long, 'utf8')).toBe('new')
  })
})

async function* later() {
  yield 'a'
  yield 'b'
}

function* broken(halfWay: () => void) {
  yield 'half of the'
  halfWay()
  yield ' file'
}
