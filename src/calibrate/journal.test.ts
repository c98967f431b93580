import { appendFileSync, existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { failure, temporaryFolder } from '../../test/trace-support.ts'
import type { Captured } from './captured.ts'
import { type Identity, Journal } from './journal.ts'
import { lock, lockOf } from './lock.ts'

const folder = temporaryFolder()
afterAll(() => folder.remove())
const IDENTITY: Identity = { prompts_sha256: 'abc', model: 'm', steps: 3, limit: null }

let files = 0
const fresh = () => join(folder.path, `journal-${files++}`)

/** A model with 2 layers and top 2, in which every value encodes its position. */
function captured(seed: number, steps = 3, experts = 4, halfLife = 64): Captured {
  const cells = Array.from({ length: 2 * experts }, (_, i) => seed * 100 + i)
  return {
    layers: 2,
    experts,
    topK: 2,
    halfLife,
    tokens: 9,
    covered: 8,
    counts: Uint16Array.from(cells),
    ...(halfLife > 0 && { recent: Uint16Array.from(cells, value => value + 50) }),
    steps,
    ids: Uint16Array.from({ length: steps * 4 }, (_, i) => (i * 7 + seed) % experts),
  }
}

async function expectRecord(journal: Journal, request: number, expected: Captured): Promise<void> {
  const { counts, recent, ids, ...head } = expected
  expect(journal.head(request)).toEqual({ request, ...head })
  expect(await journal.counts(request)).toEqual(counts)
  expect(await journal.recent(request)).toEqual(recent ?? new Uint16Array(0))
  const bytes = await journal.ids(request)
  expect([...(expected.experts > 256 ? new Uint16Array(bytes) : new Uint8Array(bytes))]).toEqual([...ids])
}

describe('Journal', () => {
  it.each([
    ['one byte per id', 4, 64],
    ['two bytes per id, no recent counts', 300, 0],
  ])('gives back what was added, also when it is opened again: %s', async (_, experts, halfLife) => {
    const path = fresh()
    const rows = [
      captured(1, 3, experts, halfLife),
      captured(2, 0, experts, halfLife),
      captured(3, 1, experts, halfLife),
    ]
    const first = await Journal.open(path, IDENTITY)
    // Concurrently, as responses arrive.
    await Promise.all([
      first.add(5, rows[0]!),
      first.add(0, 'too_long'),
      first.add(2, rows[1]!),
      first.add(7, rows[2]!),
    ])
    await expectRecord(first, 2, rows[1]!)
    await first.close()
    const second = await Journal.open(path, IDENTITY)
    expect(second.size).toBe(4)
    expect(second.head(0)).toEqual({ request: 0, skip: 'too_long' })
    expect([1, 5].map(request => second.has(request))).toEqual([false, true])
    await expectRecord(second, 5, rows[0]!)
    await expectRecord(second, 7, rows[2]!)
    expect(second.shape).toEqual({ layers: 2, experts, topK: 2, halfLife })
    await second.remove()
    expect(existsSync(path)).toBe(false)
  })

  it('drops a truncated last record and continues after the one before', async () => {
    const path = fresh()
    const journal = await Journal.open(path, IDENTITY)
    await journal.add(0, captured(1))
    const whole = statSync(path).size
    await journal.add(1, captured(2))
    await journal.close()
    const bytes = readFileSync(path)
    for (let length = whole; length < bytes.length; length++) {
      writeFileSync(path, bytes.subarray(0, length))
      const again = await Journal.open(path, IDENTITY)
      expect([again.size, again.has(1), statSync(path).size]).toEqual([1, false, whole])
      await again.add(1, captured(2))
      await again.close()
      expect(readFileSync(path)).toEqual(bytes)
    }
  })

  it('detects every changed byte', async () => {
    const path = fresh()
    const journal = await Journal.open(path, IDENTITY)
    await journal.add(0, captured(1))
    const whole = statSync(path).size
    await journal.add(1, captured(2))
    await journal.close()
    const bytes = readFileSync(path)
    for (let at = whole; at < bytes.length; at++) {
      const damaged = Buffer.from(bytes)
      damaged[at]! ^= 0x10
      writeFileSync(path, damaged)
      const again = await Journal.open(path, IDENTITY)
      expect(again.has(1)).toBe(false)
      await again.close()
    }
    writeFileSync(path, bytes)
    appendFileSync(path, Buffer.alloc(4096))
    const zeros = await Journal.open(path, IDENTITY)
    expect(zeros.size).toBe(2)
    await zeros.close()
  })

  it.each([
    [{ ...IDENTITY, steps: 4 }, /steps 3 in the journal, expected 4, from this command/],
    [{ ...IDENTITY, model: 'other' }, /model "m" in the journal, expected "other"/],
    [{ ...IDENTITY, holdout: 0.3 }, /holdout none in the journal, expected 0.3/],
    [{ ...IDENTITY, limit: 10 }, /limit null in the journal, expected 10/],
  ])('rejects the journal of another command and leaves it unchanged: %j', async (identity, message) => {
    const path = fresh()
    const journal = await Journal.open(path, IDENTITY)
    await journal.add(0, captured(1))
    await journal.close()
    const before = readFileSync(path)
    const error = await failure(path, () => Journal.open(path, identity))
    expect(error.code).toBe('ELDR_JOURNAL_MISMATCH')
    expect(error.message).toMatch(message)
    expect(readFileSync(path)).toEqual(before)
  })

  it.each(['', 'some text', '{"format":"eldr.journal.v9"}\n', 'null\n'])(
    'rejects a file that is not a journal: %j',
    async text => {
      const path = fresh()
      writeFileSync(path, text)
      expect((await failure(path, () => Journal.open(path, IDENTITY))).code).toBe('ELDR_JOURNAL_MISMATCH')
      expect(readFileSync(path, 'utf8')).toBe(text)
    },
  )

  it('accepts only one model', async () => {
    const path = fresh()
    const journal = await Journal.open(path, IDENTITY)
    await journal.add(0, captured(1))
    for (const other of [captured(2, 3, 8), captured(2, 3, 4, 0)]) {
      const error = await failure(path, () => journal.add(1, other))
      expect(error.code).toBe('ELDR_CAPTURE_CHANGED')
    }
    await journal.add(2, captured(3))
    expect(journal.size).toBe(2)
    await journal.close()
  })
})

describe('lock', () => {
  it('is held by one process, and taken over from a dead one', () => {
    const path = fresh()
    const unlock = lock(path)
    expect(readFileSync(lockOf(path), 'utf8')).toBe(String(process.pid))
    unlock()
    writeFileSync(lockOf(path), String(process.ppid))
    expect(() => lock(path)).toThrow(new RegExp(`held by process ${process.ppid}.*ELDR_JOURNAL_MISMATCH`))
    writeFileSync(lockOf(path), String(2 ** 22 + 1)) // above the pids of Linux
    lock(path)()
    expect(existsSync(lockOf(path))).toBe(false)
  })

  it('leaves no other file, and does not remove a lock that another process took over', () => {
    const path = join(folder.path, 'locked')
    const unlock = lock(path)
    expect(readdirSync(folder.path).filter(name => name.startsWith('locked'))).toEqual(['locked.lock'])
    writeFileSync(lockOf(path), String(process.ppid))
    unlock()
    expect(readFileSync(lockOf(path), 'utf8')).toBe(String(process.ppid))
    expect(() => lock(path)).toThrow(/ELDR_JOURNAL_MISMATCH/)
    expect(readdirSync(folder.path).filter(name => name.startsWith('locked'))).toEqual(['locked.lock'])
  })
})
