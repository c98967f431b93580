import { describe, expect, it } from 'vitest'
import { brokenNumbers, parse } from './well-formed.ts'

describe('parse', () => {
  it('reads elements with their text and attributes', () => {
    expect(parse('<p class="a &amp; b">x<br/>&lt;y</p>')).toEqual([
      { name: 'p', attributes: { class: 'a & b' }, text: 'x<y' },
      { name: 'br', attributes: {}, text: '' },
    ])
  })

  it.each([
    ['a tag that is never closed', '<p><b></b>'],
    ['tags that cross', '<p><b></p></b>'],
    ['an unquoted attribute', '<p a=b></p>'],
    ['an attribute given twice', '<p a="1" a="2"></p>'],
    ['a bare ampersand', '<p>a & b</p>'],
    ['a stray angle', '<p>a < b</p>'],
    ['an id used twice', '<p><b id="x"></b><b id="x"></b></p>'],
    ['a reference to nothing', '<p aria-labelledby="x"></p>'],
    ['text outside', '<p></p>text'],
  ])('refuses %s', (_, markup) => {
    expect(() => parse(markup)).toThrow(Error)
  })
})

describe('brokenNumbers', () => {
  it('finds them in text and attributes', () => {
    const broken = [
      '<p>NaN</p>',
      '<p>undefined</p>',
      '<p x="Infinity"></p>',
      '<p d="M0 -0"></p>',
      '<p>[object Object]</p>',
    ]
    for (const markup of broken) expect(brokenNumbers(parse(markup))).toHaveLength(1)
    expect(brokenNumbers(parse('<p d="M-0.5 10">eldr-0 0.1.0</p>'))).toEqual([])
  })
})
