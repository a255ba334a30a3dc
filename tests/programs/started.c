/* Says what is in LD_PRELOAD. It is built in ways that cannot load the shim. */
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    const char *preload = getenv("LD_PRELOAD");
    printf("preload=%s\n", preload ? preload : "");
    return 7;
}
