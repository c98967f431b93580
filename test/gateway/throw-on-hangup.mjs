// Loaded into the gateway's processes by a test: SIGHUP throws an exception that nothing catches.
process.prependListener('SIGHUP', () => {
  throw new Error('a fault that a test made')
})
