/** Never accepted as a secret, so that what was printed cannot come back as a key that everybody knows. */
export const MASK = '********'
