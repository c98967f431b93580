import { faultMatrix } from './fault-matrix.ts'

faultMatrix()
