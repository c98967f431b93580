/**
 * Loaded into every process of the embedded cluster before its program (`node --import`). The process exits
 * when its parent is gone for any reason. The channel to the parent does not keep the process alive.
 */
process.on('disconnect', () => process.exit(0))
process.channel?.unref()
