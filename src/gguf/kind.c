/* SPDX-License-Identifier: Apache-2.0 */
/* Names files that are given in place of a model's: other formats, and GGUF files of other things. */
#include "gguf/gguf_priv.h"

#include "base/check.h"
#include "base/err.h"

#include <string.h>
#include <strings.h>

/* The first bytes of files that people find under a model's name. */
static const struct {
    size_t at;
    const char *text, *what;
} FOREIGN[] = {
    {0, "<!doctype", ", but a web page"},
    {0, "<html", ", but a web page"},
    {0, "version https://git-lfs", ", but a pointer of Git LFS; 'git lfs pull' fetches the file itself"},
    {0, "PK\3\4", ", but a zip archive or a PyTorch file"},
    {8, "{\"", ", but perhaps safetensors; convert_hf_to_gguf.py of llama.cpp writes GGUF"},
};

const char *gguf_foreign(struct bytes image)
{
    for (size_t i = 0; i < ARRAY_LEN(FOREIGN); i++) {
        size_t n = strlen(FOREIGN[i].text);

        if (image.len_bytes >= FOREIGN[i].at + n &&
            strncasecmp((const char *)image.data + FOREIGN[i].at, FOREIGN[i].text, n) == 0)
            return FOREIGN[i].what;
    }
    return "";
}

int gguf_check_model(const struct gguf *gguf, struct fault *fault)
{
    struct bytes type = bytes_str(""), arch = bytes_str("");
    const char *what = NULL;

    gguf_get_str(gguf, "general.type", NULL, &type);
    gguf_get_str(gguf, "general.architecture", NULL, &arch);
    if (bytes_is(type, "adapter"))
        what = "an adapter (LoRA); llama-export-lora merges it into its model";
    else if (bytes_is(type, "mmproj") || bytes_is(arch, "clip"))
        what = "a projector of images (mmproj); name the model's file beside it";
    else if (bytes_is(type, "imatrix"))
        what = "an importance matrix, which quantize --imatrix reads";
    return what == NULL ? 0 : fault_set(fault, E_UNSUPPORTED, "not a model but %s", what);
}
