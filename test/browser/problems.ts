/**
 * An expression that finds visual problems of a page with charts: labels outside of their chart, overlapping
 * labels, and horizontal scrolling of the page.
 */
export const PROBLEMS = `(() => {
  const problems = []
  if (document.documentElement.scrollWidth > innerWidth) problems.push('the page scrolls sideways')
  for (const svg of document.querySelectorAll('svg.chart')) {
    const name = svg.querySelector('title').textContent
    const chart = svg.getBoundingClientRect()
    const labels = [...svg.querySelectorAll('text')].map(text => ({ words: text.firstChild.textContent, box: text.getBoundingClientRect() }))
    for (const { words, box } of labels)
      if (box.left < chart.left - 1 || box.right > chart.right + 1 || box.top < chart.top - 1 || box.bottom > chart.bottom + 1)
        problems.push(name + ': ' + words + ' is cut off')
    labels.forEach((a, i) => labels.slice(i + 1).forEach(b => {
      const wide = Math.min(a.box.right, b.box.right) - Math.max(a.box.left, b.box.left)
      const high = Math.min(a.box.bottom, b.box.bottom) - Math.max(a.box.top, b.box.top)
      if (wide > 1 && high > 3) problems.push(name + ': ' + a.words + ' covers ' + b.words)
    }))
  }
  return problems
})()`
