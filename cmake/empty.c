/* SPDX-License-Identifier: Apache-2.0
 * libbrant.so is made of the static libraries; a shared library needs one source of its own. */
typedef int brant_empty_translation_unit;
