import { afterAll, describe, expect, it } from 'vitest'
import { engineOf, tiny6 } from '../../../test/tiny-support.ts'
import { temporaryFolder } from '../../../test/trace-support.ts'
import { engineOn, finished, requestOf, smallTrace } from '../../../test/worker-support.ts'
import type { Generation, WorkerEngine } from '../types.ts'

const folder = temporaryFolder()
afterAll(() => folder.remove())

/** The cuts at which a new request does not go on like the whole run: ids, text or reason differ. */
async function wrongCuts(
  engine: WorkerEngine,
  prompt: ArrayLike<number>,
  changes: Partial<Generation>,
): Promise<number[]> {
  const wrong: number[] = []
  const whole = await finished(engine, requestOf(prompt, changes))
  const { maxTokens, minTokens } = requestOf(prompt, changes)
  for (let cut = 1; cut < whole.ids.length; cut++) {
    const stream = engine.tokenizer.stream(prompt)
    const before = whole.ids.slice(0, cut).map(id => stream.push(id))
    const after = await finished(
      engine,
      requestOf([...Array.from(prompt), ...whole.ids.slice(0, cut)], {
        ...changes,
        maxTokens: maxTokens - cut,
        minTokens: Math.max(0, minTokens - cut),
        generated: cut,
      }),
    )
    const ids = [...whole.ids.slice(0, cut), ...after.ids]
    const text = before.join('') + after.text + after.end.tail
    const isSame =
      ids.join() === whole.ids.join() &&
      text === whole.text + whole.end.tail &&
      after.end.reason === whole.end.reason
    if (!isSame) wrong.push(cut)
  }
  return wrong
}

describe('a request that goes on after the tokens of another worker', () => {
  it('gives the text of the unbroken run with tiny, greedy and seeded, also inside a character', async () => {
    const model = await tiny6()
    const engine = engineOf(model)
    const prompt = model.tokenizer.encode('The committee decided')
    expect(await wrongCuts(engine, prompt, { maxTokens: 12 })).toEqual([])
    expect(
      await wrongCuts(engine, prompt, { maxTokens: 12, temperature: 0.8, seed: 7, topK: 20, topP: 0.9 }),
    ).toEqual([])
    // At this temperature most tokens are parts of characters, in any order.
    for (const seed of [1, 2, 3])
      expect(
        await wrongCuts(engine, prompt, { maxTokens: 24, minTokens: 24, temperature: 1e6, seed }),
      ).toEqual([])
    await engine.close()
  })

  it('gives the text of the unbroken run with replay, greedy and seeded, for short prompts too', async () => {
    const engine = await engineOn(await smallTrace(folder.path))
    for (const prompt of [[300], Array.from({ length: 40 }, (_, i) => 256 + i)]) {
      expect(await wrongCuts(engine, prompt, { maxTokens: 30 })).toEqual([])
      expect(await wrongCuts(engine, prompt, { maxTokens: 30, minTokens: 20 })).toEqual([])
      expect(
        await wrongCuts(engine, prompt, { maxTokens: 9, ignoreEos: true, temperature: 1, seed: 3 }),
      ).toEqual([])
    }
    await engine.close()
  })
})
