/**
 * Loaded into every process of the embedded cluster before its program (`node --import`): when the one that started it is gone, however
 * it went, this one goes too. The channel by which it notices keeps nobody alive who has nothing else to do.
 */
process.on('disconnect', () => process.exit(0))
process.channel?.unref()
