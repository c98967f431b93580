/** Never accepted as a secret, so that printed settings cannot be loaded with the mask as a key. */
export const MASK = '********'
