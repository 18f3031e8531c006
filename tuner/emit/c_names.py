"""Names that a C function cannot have, or that collide with a function of a library.

The sources are: keywords, C23 6.4.1 and C++23 5.11; reserved identifiers, C23 6.4.2.1 and 7.1.3;
standard names, the functions and macros of C23 clause 7 and of POSIX.1-2024 that programs commonly
link. Names to which emitted objects refer are added. A program would link a kernel called `printf`,
and then every other use of that function would be wrong.
"""

from __future__ import annotations

import re

MAX_LENGTH = 63
"""The number of significant characters of a name in C23."""

_IDENTIFIER = re.compile(rf"[A-Za-z_][A-Za-z0-9_]{{0,{MAX_LENGTH - 1}}}")
RESERVED = re.compile(r"_.*|.*__.*")
"""Names reserved by C and C++."""

KEYWORDS = frozenset(
    """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t
    char32_t char8_t class co_await co_return co_yield compl concept const const_cast consteval
    constexpr constinit continue decltype default delete do double dynamic_cast else enum
    explicit export extern false float for friend goto if inline int long mutable namespace new
    noexcept not not_eq nullptr operator or or_eq private protected public register
    reinterpret_cast requires restrict return short signed sizeof static static_assert
    static_cast struct switch template this thread_local throw true try typedef typeid typename
    typeof typeof_unqual union unsigned using virtual void volatile wchar_t while xor xor_eq
    """.split()  # noqa: SIM905  # words are easier to read
)

_MATH = """
    acos acosh acospi asin asinh asinpi atan atan2 atan2pi atanh atanpi cbrt ceil copysign cos
    cosh cospi erf erfc exp exp10 exp10m1 exp2 exp2m1 expm1 fabs fdim floor fma fmax fmaximum
    fmin fminimum fmod frexp fromfp fromfpx hypot ilogb ldexp lgamma llogb llrint llround log
    log10 log10p1 log1p log2 log2p1 logb logp1 lrint lround modf nan nearbyint nextafter
    nextdown nexttoward nextup pow pown powr remainder remquo rint rootn round roundeven rsqrt
    scalbln scalbn sin sincos sinh sinpi sqrt tan tanh tanpi tgamma trunc ufromfp ufromfpx
    """.split()  # noqa: SIM905
_COMPLEX = """
    cabs cacos cacosh carg casin casinh catan catanh ccos ccosh cexp cimag clog conj cpow cproj
    creal csin csinh csqrt ctan ctanh
    """.split()  # noqa: SIM905
_OTHER = """
    abort abs accept access acos alarm aligned_alloc asctime asprintf assert at_quick_exit
    atexit atof atoi atol atoll basename bcmp bcopy bind bsearch bzero calloc chdir chmod chown
    clearerr clock close closedir connect creat ctime difftime dirname div dlclose dlerror
    dlopen dlsym dprintf drand48 dup dup2 environ errno execl execlp execv execve execvp exit
    fclose fcntl fdopen feclearexcept fegetenv fegetround feholdexcept feof feraiseexcept ferror
    fesetenv fesetround fetestexcept feupdateenv fflush ffs fgetc fgetpos fgets fgetwc fgetws
    fileno flockfile fnmatch fopen fork fprintf fputc fputs fputwc fputws fread free
    free_aligned_sized free_sized freopen fscanf fseek fseeko fsetpos fstat fsync ftell ftello
    ftruncate funlockfile fwide fwprintf fwrite fwscanf gamma getc getchar getcwd getdelim
    getenv geteuid gethostbyname getline getopt getpid gets getuid getwc getwchar glob gmtime
    gmtime_r htonl htons imaxabs imaxdiv index inet_ntop ioctl isalnum isalpha isascii isatty
    isblank iscntrl isdigit isfinite isgraph isgreater isgreaterequal isinf isless islessequal
    islessgreater islower isnan isnormal isprint ispunct isspace isunordered isupper iswalnum
    iswalpha iswblank iswcntrl iswdigit iswlower iswspace iswupper isxdigit j0 j1 jn kill labs
    ldiv link listen llabs lldiv localeconv localtime localtime_r longjmp lseek lstat main
    malloc math_errhandling mblen mbrlen mbrtowc mbsinit mbsrtowcs mbstowcs mbtowc memalignment
    memccpy memchr memcmp memcpy memmem memmove mempcpy memrchr memset memset_explicit mkdir
    mkstemp mktime mmap mprotect mrand48 munmap nanosleep nice ntohl ntohs offsetof open opendir
    pause pclose perror pipe poll popen posix_memalign pread printf pthread_create pthread_join
    putc putchar putenv puts putwc putwchar pwrite qsort quick_exit raise rand rand_r random
    read readdir readlink readv realloc realpath recv regcomp regexec remove rename rewind
    rindex rmdir scanf select send setbuf setenv setjmp setlocale setvbuf shutdown sigaction
    siglongjmp signal signbit sigsetjmp sleep snprintf socket sprintf srand srand48 srandom
    sscanf stat stderr stdin stdout stpcpy stpncpy strcasecmp strcat strchr strcmp strcoll
    strcpy strcspn strdup strerror strfromd strfromf strftime strlen strncasecmp strncat strncmp
    strncpy strndup strnlen strpbrk strrchr strsep strsignal strspn strstr strtod strtof
    strtoimax strtok strtok_r strtol strtold strtoll strtoul strtoull strtoumax strxfrm swprintf
    swscanf symlink sync sysconf system tempnam time timegm timespec_get timespec_getres tmpfile
    tmpnam toascii tolower toupper towctrans towlower towupper truncate tss_create tss_delete
    ttyname tzset umask uname ungetc ungetwc unlink unsetenv usleep utime va_arg va_copy va_end
    va_start vasprintf vdprintf vfork vfprintf vfscanf vfwprintf vfwscanf vprintf vscanf
    vsnprintf vsprintf vsscanf vswprintf vwprintf wait waitpid wcrtomb wcscat wcschr wcscmp
    wcscoll wcscpy wcscspn wcsftime wcslen wcsncat wcsncmp wcsncpy wcspbrk wcsrchr wcsrtombs
    wcsspn wcsstr wcstod wcstof wcstok wcstol wcstold wcstoll wcstombs wcstoul wcstoull wcsxfrm
    wctob wctomb wctrans wctype wmemchr wmemcmp wmemcpy wmemmove wmemset wprintf write writev
    wscanf y0 y1 yn
    """.split()  # noqa: SIM905

STANDARD_NAMES = frozenset(
    [name + suffix for name in (*_MATH, *_COMPLEX) for suffix in ("", "f", "l")] + _OTHER
)

_RUNTIMES = re.compile(r"(GOMP|GOACC|omp|acc|kmpc|tilewright)_.*", re.IGNORECASE)


def name_problem(name: str) -> str:
    """Return the reason why a kernel's C function cannot have this name, or "" if it can."""
    if not _IDENTIFIER.fullmatch(name):
        return f"a C function name is letters, digits and _, at most {MAX_LENGTH} of them"
    if name in KEYWORDS:
        return "this is a keyword of C or C++"
    if RESERVED.fullmatch(name):
        return "names with __, or with _ in front, are reserved for compilers and libraries"
    if name in STANDARD_NAMES or _RUNTIMES.fullmatch(name):
        return "this is a name of the C library or of a runtime, which a kernel would replace"
    return ""
