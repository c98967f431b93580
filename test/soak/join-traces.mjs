// One trace with the requests of several, so that workers which replay it can serve either kind of traffic.
import { withSafetensors } from '../../dist/trace/safetensors-file.js'
import { writeSafetensors } from '../../dist/trace/safetensors-write.js'

/** Labels, which number the domains of one trace. */
const LEFT_OUT = new Set(['domain'])

/** Writes `path` and returns the number of requests of each trace, in order. */
export async function joinTraces(files, path) {
  const parts = await Promise.all(files.map(file => withSafetensors(file, read)))
  const { metadata, tensors } = parts[0]
  const { domains: _, ...rest } = metadata
  const joined = Object.entries(tensors)
    .filter(([name]) => !LEFT_OUT.has(name))
    .map(([name, { dtype, shape }]) => [
      name,
      {
        dtype,
        shape: [parts.reduce((sum, part) => sum + part.tensors[name].shape[0], 0), ...shape.slice(1)],
        data: parts.map(part => part.tensors[name].data),
      },
    ])
  await writeSafetensors(path, { metadata: rest, tensors: Object.fromEntries(joined) })
  return parts.map(part => part.tensors['prefill_counts'].shape[0])
}

async function read(file) {
  const tensors = {}
  for (const [name, { dtype, shape }] of file.tensors)
    tensors[name] = { dtype, shape, data: await file.read(name) }
  return { metadata: file.metadata, tensors }
}
