import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { parse } from '../../test/browser/well-formed.ts'
import { element, printable, together } from './markup.ts'

describe('element', () => {
  it('escapes plain strings', () => {
    const hostile = '<script>alert("x")</script> & \'y\''
    expect(element('b', { title: hostile }, hostile).markup).toBe(
      '<b title="&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt; &amp; &#39;y&#39;">&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt; &amp; &#39;y&#39;</b>',
    )
  })

  it('nests markup, lists and gaps', () => {
    expect(element('p', {}, 'a', element('br', {}), undefined, ['b', [together('c', 'd')]]).markup).toBe(
      '<p>a<br/>bcd</p>',
    )
  })

  it('self-closes empty shapes, but no HTML elements', () => {
    expect(element('path', {}).markup).toBe('<path/>')
    expect(element('path', {}, element('title', {}, 't')).markup).toBe('<path><title>t</title></path>')
    expect(element('div', {}).markup).toBe('<div></div>')
  })

  it('writes numbers as short coordinates, never NaN, and leaves undefined attributes out', () => {
    expect(
      element('rect', { x: 1 / 3, y: -0.001, width: Number.NaN, height: Infinity, rx: undefined }).markup,
    ).toBe('<rect x="0.33" y="0" width="0" height="0"/>')
  })

  it('keeps any string well-formed and readable', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), text => {
        const [one] = parse(element('p', { title: text }, text).markup)
        expect(one!.text).toBe(printable(text))
        expect(one!.attributes['title']).toBe(printable(text))
      }),
    )
  })
})

describe('printable', () => {
  it('removes control characters, lone surrogates and direction overrides', () => {
    expect(printable('a\u0000b\u001bc\u202ed\ud800e')).toBe('a\ufffdb\ufffdc\ufffdd\ufffde')
    expect(printable('ü 漢字 😀\tx\n')).toBe('ü 漢字 😀\tx\n')
  })
})
