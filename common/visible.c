/* Lists of devices: see visible.h. */
#include "common/visible.h"

#include <string.h>

void gm_tokens_cut(struct gm_tokens *tokens, const char *list)
{
    const char *at = list;
    tokens->n = 0;
    tokens->rest = list;
    for (bool is_more = true; is_more && tokens->n < GM_DEVICES_VISIBLE;) {
        const size_t length = strcspn(at, ",");
        if (length >= GM_TOKEN_SIZE)
            return;
        tokens->token[tokens->n++] = (struct gm_token){at, length};
        tokens->rest = at + length;
        is_more = at[length] == ',';
        at += length + 1;
    }
}

size_t gm_tokens_write(const struct gm_tokens *tokens, const uint32_t *order, uint32_t n,
                       char *text, size_t size)
{
    const size_t behind = strlen(tokens->rest);
    size_t at = 0;
    for (uint32_t i = 0; i < tokens->n; i++) {
        const struct gm_token *token = &tokens->token[i < n ? order[i] : i];
        if (at + token->length + 1 >= size)
            return 0;
        if (i > 0)
            text[at++] = ',';
        memcpy(text + at, token->at, token->length);
        at += token->length;
    }
    if (at + behind >= size)
        return 0;
    memcpy(text + at, tokens->rest, behind + 1);
    return at + behind;
}

/* The device whose UUID begins so; none if there are several. */
static uint32_t find_uuid(const struct gm_devices *devices, const char *text, size_t length)
{
    uint32_t found = UINT32_MAX;
    char uuid[GM_UUID_TEXT];
    for (uint32_t i = 0; i < devices->n; i++) {
        if (length >= sizeof(uuid) ||
            memcmp(gm_uuid_format(devices->uuid[i], uuid), text, length) != 0)
            continue;
        if (found != UINT32_MAX)
            return UINT32_MAX;
        found = i;
    }
    return found;
}

/* As CUDA reads a number: blanks before it and whatever follows it do not matter. */
static uint32_t find_number(const struct gm_devices *devices, const char *text, size_t length)
{
    size_t at = 0;
    uint32_t number = 0;
    while (at < length && (text[at] == ' ' || text[at] == '\t'))
        at++;
    const size_t from = at;
    for (; at < length && text[at] >= '0' && text[at] <= '9' && number < devices->n; at++)
        number = number * 10 + (uint32_t)(text[at] - '0');
    return at > from && number < devices->n ? number : UINT32_MAX;
}

uint32_t gm_devices_read(const struct gm_devices *devices, const struct gm_token_entry *tokens,
                         uint32_t n, bool has_numbers, uint32_t found[GM_DEVICES_VISIBLE])
{
    uint64_t named = 0;
    uint32_t count = 0;
    bool has_uuids = false;
    for (; count < n && count < GM_DEVICES_VISIBLE; count++) {
        const char *text = tokens[count].text;
        const size_t length = strnlen(text, GM_TOKEN_SIZE);
        const bool is_uuid = length > 4 && memcmp(text, "GPU-", 4) == 0;
        uint32_t device = UINT32_MAX;
        has_uuids = count == 0 ? is_uuid : has_uuids;
        if (is_uuid != has_uuids)
            break;
        if (is_uuid)
            device = find_uuid(devices, text, length);
        else if (has_numbers)
            device = find_number(devices, text, length);
        if (device == UINT32_MAX)
            break;
        if ((named >> device & 1) != 0)
            return 0;
        named |= 1ull << device;
        found[count] = device;
    }
    return count;
}
