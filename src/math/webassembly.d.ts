/** The part of WebAssembly that the kernel uses; Node has it, its type package for version 20 does not. */
declare namespace WebAssembly {
  interface Module {
    readonly compiled: never
  }
  const Module: new (bytes: Uint8Array) => Module
  const Instance: new (module: Module) => { readonly exports: Record<string, unknown> }
  interface Memory {
    readonly buffer: ArrayBuffer
    grow(pages: number): number
  }
  function validate(bytes: Uint8Array): boolean
}
