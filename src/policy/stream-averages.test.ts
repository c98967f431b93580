import { describe, expect, it } from 'vitest'
import { createStreamAverages } from './stream-averages.ts'

const request = (id: string) => ({ id })

describe('the averages of a stream', () => {
  it('are over the decisions during its life', () => {
    const averages = createStreamAverages(2)
    const [one, other] = [request('one'), request('other')]
    averages.saw(0, 100, 50)
    averages.begin(one, 0, 10)
    averages.saw(0, 20, 2)
    averages.begin(other, 0, 40)
    averages.saw(0, 30, 3)
    averages.saw(1, 99, 99)
    // 51 and 3 are the requests of the last decision and the stream that begins.
    expect(averages.end(one)).toEqual({ experts: (10 + 20 + 40 + 30) / 4, requests: (51 + 2 + 3 + 3) / 4 })
    expect(averages.end(other)).toEqual({ experts: 35, requests: 3 })
  })

  it('are the values at its beginning if there was no decision since', () => {
    const averages = createStreamAverages(1)
    const alone = request('alone')
    averages.saw(0, 0, 0)
    averages.begin(alone, 0, 8)
    expect(averages.end(alone)).toEqual({ experts: 8, requests: 1 })
  })

  it('are undefined for a stream that has ended or never began', () => {
    const averages = createStreamAverages(1)
    const once = request('once')
    averages.begin(once, 0, 8)
    averages.end(once)
    expect(averages.end(once)).toBeUndefined()
  })
})
