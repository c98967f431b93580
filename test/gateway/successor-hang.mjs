// The new process of a gateway that is being replaced hangs when it starts.
if (process.env['ELDR_SUCCESSOR'] !== undefined) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)
