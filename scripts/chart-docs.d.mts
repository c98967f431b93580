export function documentedValues(
  text: string,
): { readonly key: string; readonly value: unknown; readonly meaning: string }[]
export function readmeWith(readme: string, valuesText: string): string
