/** A SIMD module, compiled once when it is first used; null if the engine has no WebAssembly SIMD. */
export function simdModuleOf(base64: string): () => WebAssembly.Module | null {
  let compiled: WebAssembly.Module | null | undefined
  return () => {
    if (compiled === undefined) {
      const bytes = Buffer.from(base64, 'base64')
      compiled =
        typeof WebAssembly === 'object' && WebAssembly.validate(bytes) ? new WebAssembly.Module(bytes) : null
    }
    return compiled
  }
}
