/** Decode policies that use τ; scripts/build-dashboard.mjs sets it. */
declare const POLICIES_WITH_TAU: readonly string[]
