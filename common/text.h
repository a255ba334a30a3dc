/*
 * Checks and cleans text from outside that is shown to people. Legal text is printable ASCII and
 * well-formed UTF-8 without characters that control or format: it cannot break a line, a terminal
 * or a JSON document, and reads as it is stored. Builds text of parts, too. Pure; anybody may call;
 * calls nothing.
 */
#ifndef GM_COMMON_TEXT_H
#define GM_COMMON_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Whether it shows nothing itself, or changes how what is around it reads: Unicode's controls and
 * formats (Cc, Cf), ends of lines (Zl, Zp), and fillers. */
static inline bool gm_text_is_unseen(uint32_t code)
{
    static const uint32_t ranges[][2] = {
        {0x0, 0x1f},        {0x7f, 0x9f},       {0xad, 0xad},       {0x34f, 0x34f},
        {0x600, 0x605},     {0x61c, 0x61c},     {0x6dd, 0x6dd},     {0x70f, 0x70f},
        {0x890, 0x891},     {0x8e2, 0x8e2},     {0x115f, 0x1160},   {0x17b4, 0x17b5},
        {0x180b, 0x180f},   {0x200b, 0x200f},   {0x2028, 0x202e},   {0x2060, 0x206f},
        {0x3164, 0x3164},   {0xfe00, 0xfe0f},   {0xfeff, 0xfeff},   {0xffa0, 0xffa0},
        {0xfff0, 0xfffb},   {0x110bd, 0x110bd}, {0x110cd, 0x110cd}, {0x13430, 0x1343f},
        {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0] && code >= ranges[i][0]; i++)
        if (code <= ranges[i][1])
            return true;
    return false;
}

/* Bytes (1..4) of the legal character at `s`, which has `left` bytes; 0 if there is none. */
static inline size_t gm_text_step(const char *s, size_t left)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000}; /* else there is a shorter form */
    if (left == 0)
        return 0;
    uint8_t lead = (uint8_t)s[0];
    size_t n = lead < 0x80 ? 1 : lead < 0xc0 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (n == 0 || n > left || lead >= 0xf8)
        return 0;
    uint32_t code = n == 1 ? lead : lead & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if (((uint8_t)s[i] & 0xc0u) != 0x80u)
            return 0;
        code = code << 6 | ((uint8_t)s[i] & 0x3fu);
    }
    if (code < least[n] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
        return 0;
    return gm_text_is_unseen(code) ? 0 : n;
}

/* Whether `text` ends within `size` bytes and is legal up to there. */
static inline bool gm_text_is_legal(const char *text, size_t size)
{
    size_t i = 0;
    while (i < size && text[i] != '\0') {
        size_t n = gm_text_step(text + i, size - i);
        if (n == 0)
            return false;
        i += n;
    }
    return i < size;
}

/* Make the text legal in place: '?' for each illegal byte, and a NUL within `size` (> 0) bytes. */
static inline void gm_text_clean(char *text, size_t size)
{
    size_t length = strnlen(text, size);
    if (length == size)
        text[--length] = '\0';
    for (size_t i = 0; i < length;) {
        size_t n = gm_text_step(text + i, length - i);
        if (n == 0)
            text[i] = '?';
        i += n == 0 ? 1 : n;
    }
}

/* Append to `text`, which ends within `size` (> 0) bytes; what does not fit is cut off. Returns its
 * length then, which is less than `size`. Text is put together by this alone: snprintf returns what
 * it wanted to write, and a sum of that leads behind the end. */
__attribute__((format(printf, 3, 4))) static inline size_t gm_text_add(char *text, size_t size,
                                                                       const char *format, ...)
{
    const size_t length = strnlen(text, size);
    va_list list;
    if (length == size)
        return size - 1; /* it does not end: nothing is touched */
    va_start(list, format);
    const int n = vsnprintf(text + length, size - length, format, list);
    va_end(list);
    if (n < 0)
        text[length] = '\0';
    return length + strlen(text + length);
}

#endif
