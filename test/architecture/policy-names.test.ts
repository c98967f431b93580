import { describe, expect, it } from 'vitest'
import { comparedNames } from './policy-names.ts'

const seen = (text: string) => comparedNames('a.ts', text, ['jsq', 'eldr', 'union'])

describe('comparedNames', () => {
  it.each([
    ["policy !== 'jsq'"],
    ["'jsq' == policy"],
    ['policy === "jsq"'],
    ['policy === `jsq`'],
    ["policy ===\n  'jsq'"],
    ["options.policy?.name === ('jsq' as Policy)"],
    ["['eldr', 'union'].includes(policy)"],
    ["['jsq', name].includes(policy)"],
    ["[name, 'jsq', other].indexOf(policy)"],
    ["['none', ...['jsq']].includes(policy)"],
    ["new Set(['jsq', 'other']).has(policy)"],
    ["new Map([['jsq', 1]]).has(policy)"],
    ["policy.startsWith('eldr')"],
    ["policies.includes('eldr')"],
    ['policy in { jsq: 1 }'],
    ["({ 'jsq': 1, other: 2 })[policy]"],
    ['/^(eldr|union)$/'],
  ])('sees %s', text => {
    expect(seen(`void (${text})`)).toEqual([text])
  })

  it('sees a case, and a list or a set that a variable has', () => {
    expect(seen("switch (policy) { case 'jsq': break }")).toEqual(["'jsq'"])
    expect(seen("const LOADS = ['jsq', 'other'] as const\nLOADS.includes(policy)")).toEqual([
      'LOADS.includes(policy)',
    ])
    expect(seen("const f = () => SET.has(policy)\nconst SET = new Set(['jsq'])")).toEqual(['SET.has(policy)'])
  })

  it('sees nothing in a list that is run through, a table, a default, a comment or another word', () => {
    expect(
      seen(`
        // policy === 'jsq'
        for (const policy of ['jsq', 'eldr']) run({ policy })
        const TARGET = { jsq: 2, union: 1 }
        const target = TARGET[policy]
        const { policy = 'jsq' } = options
        if (policy === 'other') run({ policy: 'jsq' })
      `),
    ).toEqual([])
  })
})
