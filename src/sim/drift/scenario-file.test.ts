import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { failure, temporaryFolder } from '../../../test/trace-support.ts'
import { SCENARIOS } from './scenario.ts'
import { readScenarios } from './scenario-file.ts'

const folder = temporaryFolder()
afterAll(() => folder.remove())
const file = join(folder.path, 'mine.json')
const read = (content: unknown) => {
  writeFileSync(file, typeof content === 'string' ? content : JSON.stringify(content))
  return readScenarios(file)
}

describe('a file of scenarios', () => {
  it('may have everything that the built-in ones have', async () => {
    expect(await read(SCENARIOS)).toEqual(SCENARIOS)
  })

  it('needs only names: by default nothing drifts', async () => {
    expect(await read([{ name: 'calm' }])).toEqual([{ name: 'calm', about: '', artifact: 'own' }])
  })

  it.each([
    ['not JSON', /text that is not JSON \(.*expected a JSON list/],
    [[], /no list of scenarios/],
    [[1], /no object in scenario 1/],
    [[{ name: 'a' }, { name: 'B c' }], /name "B c" in scenario 2/],
    [[{ name: 'a', artifact: 'none' }], /artifact "none" in scenario 1, expected one of own, foreign/],
    [[{ name: 'a', slowness: '2' }], /slowness "2" in scenario 1, expected a number from 0.1 to 100/],
    [[{ name: 'a', burstSeconds: 0 }], /burstSeconds 0/],
    [[{ name: 'a', burst: 3 }], /field "burst"/],
    [[{ name: 'a', burstSeconds: 3, daySeconds: 4 }], /burstSeconds and daySeconds/],
  ])('%j is refused with the reason', async (content, message) => {
    const error = await failure(file, () => read(content))
    expect(error.code).toBe('ELDR_FILE_WRONG_KIND')
    expect(error.message).toMatch(message)
  })

  it('that does not exist is unreadable', async () => {
    const missing = join(folder.path, 'none.json')
    expect((await failure(missing, () => readScenarios(missing))).code).toBe('ELDR_FILE_UNREADABLE')
  })
})
