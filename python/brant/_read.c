/* SPDX-License-Identifier: Apache-2.0
 *
 * Purpose: the few rows of a show() as Python values: importing pyarrow for them takes longer than the query. Numbers, booleans and texts
 * become what they are; dates, timestamps and decimals come as the integers that Arrow has (rows.py makes the rest of them).
 * Order of calls: one, over a capsule that nobody has read from. A column of another type: None, and the stream is as it was.
 * Threads: the caller's, with the GIL; the stream gives it up while it waits.
 * Bounds: as many rows as the query has: its LIMIT.
 */
#include "_read.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "brant.h"

/* d:precision,scale or the same with ,128 behind it: 16 bytes. */
static bool is_decimal128(const char *f) {
  if (strncmp(f, "d:", 2) != 0) return false;
  const char *scale = strchr(f, ','), *bits = scale ? strchr(scale + 1, ',') : NULL;
  return scale && (bits == NULL || strcmp(bits, ",128") == 0);
}

static bool is_simple(const struct ArrowSchema *s) {
  const char *f = s->format;
  if (s->dictionary || s->n_children) return false;
  if (s->metadata && strlen(f) != 0) { /* an extension type: not for us */
    int32_t keys;
    memcpy(&keys, s->metadata, sizeof keys);
    if (keys > 0) return false;
  }
  if (strlen(f) == 1) return strchr("bcCsSiIlLfgun", f[0]) != NULL;
  return strcmp(f, "tdD") == 0 || strncmp(f, "tsu:", 4) == 0 || is_decimal128(f);
}

static PyObject *wide_integer(const uint8_t *p) {
  int64_t low[2];
  memcpy(low, p, sizeof low);
  if (low[1] == (low[0] < 0 ? -1 : 0)) return PyLong_FromLongLong(low[0]);
  PyObject *high = PyLong_FromLongLong(low[1]), *bits = PyLong_FromLong(64),
           *rest = PyLong_FromUnsignedLongLong((uint64_t)low[0]);
  PyObject *shifted = high && bits ? PyNumber_Lshift(high, bits) : NULL;
  PyObject *out = shifted && rest ? PyNumber_Or(shifted, rest) : NULL;
  Py_XDECREF(high);
  Py_XDECREF(bits);
  Py_XDECREF(rest);
  Py_XDECREF(shifted);
  return out;
}

#define READ(type) \
  type v;          \
  memcpy(&v, data + i * (int64_t)sizeof v, sizeof v)

static PyObject *value_at(const char *format, const struct ArrowArray *a, int64_t i) {
  const uint8_t *valid = a->buffers ? a->buffers[0] : NULL;
  i += a->offset;
  if (format[0] == 'n' || (valid && !(valid[i / 8] >> (i % 8) & 1))) Py_RETURN_NONE;
  const uint8_t *data = a->buffers[1];
  switch (format[0]) {
    case 'b': return PyBool_FromLong(data[i / 8] >> (i % 8) & 1);
    case 'c': return PyLong_FromLong((int8_t)data[i]);
    case 'C': return PyLong_FromLong(data[i]);
    case 's': {
      READ(int16_t);
      return PyLong_FromLong(v);
    }
    case 'S': {
      READ(uint16_t);
      return PyLong_FromLong(v);
    }
    case 'i': {
      READ(int32_t);
      return PyLong_FromLong(v);
    }
    case 'I': {
      READ(uint32_t);
      return PyLong_FromUnsignedLong(v);
    }
    case 'l': {
      READ(int64_t);
      return PyLong_FromLongLong(v);
    }
    case 'L': {
      READ(uint64_t);
      return PyLong_FromUnsignedLongLong(v);
    }
    case 'f': {
      READ(float);
      return PyFloat_FromDouble((double)v);
    }
    case 'g': {
      READ(double);
      return PyFloat_FromDouble(v);
    }
    case 'd': return wide_integer(data + i * 16);
    case 't':
      if (format[1] == 'd') {
        READ(int32_t);
        return PyLong_FromLong(v);
      }
      {
        READ(int64_t);
        return PyLong_FromLongLong(v);
      }
    default: break;
  }
  int32_t ends[2]; /* u */
  memcpy(ends, data + i * (int64_t)sizeof ends[0], sizeof ends);
  const char *text = a->buffers[2] ? a->buffers[2] : "";
  return PyUnicode_DecodeUTF8(text + ends[0], ends[1] - ends[0], "replace");
}

static bool add_rows(const struct ArrowSchema *schema, const struct ArrowArray *batch, PyObject *columns) {
  for (int64_t c = 0; c < schema->n_children; c++) {
    PyObject *list = PyList_GetItem(columns, (Py_ssize_t)c); /* borrowed */
    for (int64_t i = 0; i < batch->length; i++) {
      PyObject *v = value_at(schema->children[c]->format, batch->children[c], i + batch->offset);
      if (v == NULL || PyList_Append(list, v) != 0) {
        Py_XDECREF(v);
        return false;
      }
      Py_DECREF(v);
    }
  }
  return true;
}

static PyObject *failed(struct ArrowArrayStream *s) {
  const char *text = s->get_last_error(s);
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_OSError, text ? text : "the stream failed");
  return NULL;
}

static PyObject *read_rows(struct ArrowArrayStream *s, const struct ArrowSchema *schema) {
  PyObject *names = PyList_New(0), *formats = PyList_New(0), *columns = PyList_New(0), *out = NULL;
  struct ArrowArray batch;
  if (!names || !formats || !columns) goto done;
  for (int64_t c = 0; c < schema->n_children; c++) {
    PyObject *name = PyUnicode_FromString(schema->children[c]->name ? schema->children[c]->name : "");
    PyObject *format = PyUnicode_FromString(schema->children[c]->format), *list = PyList_New(0);
    bool ok = name && format && list && PyList_Append(names, name) == 0 && PyList_Append(formats, format) == 0 &&
              PyList_Append(columns, list) == 0;
    Py_XDECREF(name);
    Py_XDECREF(format);
    Py_XDECREF(list);
    if (!ok) goto done;
  }
  for (;;) {
    memset(&batch, 0, sizeof batch);
    if (s->get_next(s, &batch) != 0) {
      failed(s);
      goto done;
    }
    if (batch.release == NULL) break;
    bool ok = add_rows(schema, &batch, columns);
    batch.release(&batch);
    if (!ok) goto done;
  }
  out = PyTuple_Pack(3, names, formats, columns);
done:
  Py_XDECREF(names);
  Py_XDECREF(formats);
  Py_XDECREF(columns);
  return out;
}

PyObject *brant_read_columns(PyObject *module, PyObject *capsule) {
  (void)module;
  struct ArrowSchema schema;
  PyObject *out;
  struct ArrowArrayStream *s = PyCapsule_GetPointer(capsule, "arrow_array_stream");
  if (s == NULL) return NULL;
  if (s->release == NULL) {
    PyErr_SetString(PyExc_ValueError, "the stream was read already");
    return NULL;
  }
  if (s->get_schema(s, &schema) != 0) return failed(s);
  bool simple = true;
  for (int64_t c = 0; c < schema.n_children && simple; c++) simple = is_simple(schema.children[c]);
  if (simple) {
    out = read_rows(s, &schema);
  } else {
    Py_INCREF(Py_None);
    out = Py_None;
  }
  schema.release(&schema);
  return out;
}
