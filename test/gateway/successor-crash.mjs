// The new process of a gateway that is being replaced crashes when it starts.
if (process.env['ELDR_SUCCESSOR'] !== undefined) process.exit(7)
