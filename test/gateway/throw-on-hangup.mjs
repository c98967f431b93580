// Loaded into a gateway's processes by a test: a signal makes a fault that nobody expects.
process.prependListener('SIGHUP', () => {
  throw new Error('a fault that a test made')
})
