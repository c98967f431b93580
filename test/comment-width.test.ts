import { describe, expect, it } from 'vitest'
import { wideComments } from '../scripts/comment-width.mjs'

const long = 'word '.repeat(24)

describe('wideComments', () => {
  it('names the lines of comments that are too wide: alone, after code and in a block', () => {
    const text = `// ${long}\nconst a = 1 // ${long}\n/**\n * short\n * ${long}\n */\nconst b = 2\n`
    expect(wideComments('a.ts', text)).toEqual([1, 2, 5])
  })

  it('leaves wide strings and comments of 110 characters alone', () => {
    expect(wideComments('a.mjs', `const a = '// ${long}'\n// ${'x'.repeat(107)}\n`)).toEqual([])
    expect(wideComments('a.mjs', `// ${'x'.repeat(108)}\n`)).toEqual([1])
  })
})
