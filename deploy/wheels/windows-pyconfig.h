// What the public headers of CPython 3.11 to 3.14 read of their configuration on Windows x86-64, in place of the
// pyconfig.h of the system that builds.
#pragma once
#define MS_WINDOWS
#define MS_WIN64
#define NT_THREADS
#define WITH_THREAD 1
#define HAVE_DECLSPEC_DLL
#define Py_ENABLE_SHARED 1
#define HAVE_SSIZE_T 1
#define HAVE_STDDEF_H 1
#define HAVE_SYS_STAT_H 1
#define HAVE_SYS_TYPES_H 1
#define HAVE_WCHAR_H 1
#define SIZEOF_INT 4
#define SIZEOF_LONG 4
#define SIZEOF_LONG_LONG 8
#define SIZEOF_SIZE_T 8
#define SIZEOF_TIME_T 8
#define SIZEOF_VOID_P 8
#define SIZEOF_WCHAR_T 2
#define SIZEOF__BOOL 1
#define ALIGNOF_MAX_ALIGN_T 8
#define WITH_DOC_STRINGS 1
