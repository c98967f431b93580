/** Numbers of the lines that are too wide and have a comment, from 1. */
export function wideComments(file: string, text: string): number[]
