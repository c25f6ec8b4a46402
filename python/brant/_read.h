/* SPDX-License-Identifier: Apache-2.0
 * read_columns(capsule): a small result as Python values, without pyarrow (_read.c). */
#ifndef BRANT_PYTHON_READ_H
#define BRANT_PYTHON_READ_H
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>

PyObject *brant_read_columns(PyObject *module, PyObject *capsule);

#endif
