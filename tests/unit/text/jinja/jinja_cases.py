# SPDX-License-Identifier: Apache-2.0
"""Templates and contexts that the reference and our interpreter must agree on, texts and refusals alike."""

VALUES = {"n": 5, "z": 0, "neg": -7, "f": 2.5, "big": 2**62, "s": "hello world", "e": "", "u": "Grüße, Ωμέγα \U0001f600!",
          "l": [3, 1, 2], "el": [], "d": {"b": 1, "a": [1, {"x": None}], "c": "t\"x'y"}, "ed": {}, "t": True, "no": False,
          "nil": None, "q": "it's \"q\" \\ \n tab\t end", "names": ["bob", "Alice", "carol", "alice"],
          "ms": [{"role": "system", "content": " S "}, {"role": "user", "content": "a"},
                 {"role": "assistant", "content": "b", "n": 2}, {"role": "user", "content": "c\n"}],
          "lines": "one\n\ntwo\r\n  three", "floats": [1.0, 0.1, 1e100, 1e-7, 123456789012345680.0, -0.0, 1e16, 1e15, 3.14159],
          "huge": 18446744073709551616, "nested": {"a": {"b": {"c": [10, 20, 30]}}}, "pairs": [["a", 1], ["b", 2]]}

EXPRESSIONS = r"""
1
1.0
1e3
1_000
0x1F
0b101
0o17
'a' 'b' "c"
'\n\t\x41\u00e9\\ \d \' \101'
true
True
none
None
false
[]
[1, 'a', none, 1.5, [true]]
[1,2,]
()
(1,)
(1, 2)
{}
{'a': 1, "b": [2], 3: none, }
{'a': {'b': {'c': 1}}}
n + 1
n - 10
n * 3
n / 2
n // 2
neg // 2
neg % 3
n % -3
2 ** 10
2 ** -1
2 ** 0.5
-2 ** 2
f // 1
-f // 1
f % 2
-f % 2
5.5 // -2
n + f
t + 1
t * 3
no - 1
big + 1
big * 1
1 / 0
1 % 0
1.5 // 0
-n
+n
--n
- f
not n
not not z
'a' + 'b' + s + 'c'
'a' + 1
1 + 'a'
'a' + nil
nil + 'a'
missing + 'a'
'a' + missing
s ~ n ~ nil ~ missing ~ f ~ t ~ l
1 ~ 2 + 3
'a' * 3
3 * 'ab'
'a' * -1
[1] * 2
(1,) * 2
[1] + [2]
[1] + (2,)
n == 5
n == 5.0
t == 1
'1' == 1
nil == none
missing == missing2
l == [3, 1, 2]
[1] == (1,)
d == {'a': [1, {'x': none}], 'b': 1, 'c': d.c}
n != 5
1 < 2 < 3
1 < 3 < 2
3 > 2 >= 2
1 < 2 > 1
'a' < 'b'
'a' < 1
'é' > 'z'
[1, 2] < [1, 3]
nil < 1
missing < 1
1 in l
7 in l
7 not in l
'wor' in s
'b' in d
'zz' in d
1 in s
1 in 5
1 in missing
n in (1, 5)
not 1 in l
n and 0
z and n
z or n
e or 'x'
n or missing.foo
t and no or n
'y' if t else 'n'
'y' if no else 'n'
'y' if no
('y' if no) is defined
1 if z else 2 if e else 3
missing
missing.foo
missing['foo']
missing[0]
nil.foo
nil.foo.bar
d.b
d['b']
d.a[1].x
d['a'][0]
d.zz
d['zz']
d.zz.y
d[missing]
nested.a.b.c[1]
nested['a']['b'].c.2
l[0]
l[-1]
l[7]
l[-7]
l.0
l['0']
l[1.5]
l[t]
s[0]
s[-1]
s[99]
u[2]
u[-2]
s[1:3]
s[:3]
s[-3:]
s[::-1]
s[::2]
s[5:1]
s[10:1:-2]
u[0:4]
u[::-1]
l[1:]
l[:-1]
l[::-1]
l[1:100]
l[-100:2]
l[5:]
l[:0]
l[2:0:-1]
(1,2,3)[1:]
ms[1:]|length
ms[::-1][0].role
s[::0]
s['a':2]
nil[1:]
d[1:]
n[0]
n.foo
l
d
nil
t
f
s
u
[u, q]
q
[q]
["it's"]
['a"b']
['a"b\'c']
['\x00\x7f\xa0\u200b\U0001F600']
floats
floats|join(' ')
huge
[huge]
huge|tojson
huge is integer
huge is number
floats|tojson
u|tojson
u|tojson(ensure_ascii=true)
q|tojson
d|tojson
d|tojson(indent=2)
d|tojson(indent=4)
el|tojson(indent=2)
[el, ed]|tojson(indent=1)
d|tojson(sort_keys=true)
d|tojson(separators=(',', ':'))
d|tojson(indent='--')
{'a':1, 2: 3, none: 4, true: 5, 1.5: 6}|tojson
(1, 'a')|tojson
missing|tojson
ms|tojson
'\x7f\x1f\u2028'|tojson
'</script>&\''|tojson
n is defined
missing is defined
missing is undefined
missing is not defined
d.zz is defined
d.b is defined
nil is none
n is not none
s is string
n is string
n is number
t is number
f is float
n is float
n is integer
t is integer
t is boolean
t is true
n is true
no is false
nil is false
d is mapping
l is mapping
l is iterable
s is iterable
d is iterable
n is iterable
missing is iterable
l is sequence
s is sequence
d is sequence
n is sequence
n is odd
n is even
10 is divisibleby 5
10 is divisibleby(3)
n is eq 5
n is equalto(5)
n is == 5
n is ne 5
n is lt 6
n is gt 6
n is ge 5
n is le 4
n is in l
n is in [5]
s is lower
s is upper
'A' is upper
range is callable
s is callable
n is sameas 5
nil is sameas none
'upper' is filter
'zork' is filter
'odd' is test
n is foo
s|foo
1 is string or 2 is number
n is number and t
not n is string
n is not string and t
s|upper
u|upper
u|lower
'straße'|upper
s|title
"they're bill's friends-from (the uk) [x] <y>"|title
s|capitalize
'hELLO wORLD'|capitalize
' x \n'|trim
'xxaxx'|trim('x')
n|trim
nil|trim
missing|trim
'aaa'|replace('a','b')
'aaa'|replace('a','b',2)
'abc'|replace('','-')
n|replace('5','6')
s|length
u|length
l|length
d|length
missing|length
n|length
s|count
l|join
l|join(', ')
l|join(0)
names|join(', ')|upper
ms|join(', ', attribute='role')
s|join('-')
d|join(',')
missing|join(',')
n|join(',')
l|first
l|last
el|first
s|first
s|last
d|first
l|reverse|list
s|reverse
l|list
s|list
d|list
missing|list
l|sort
l|sort(reverse=true)
names|sort
names|sort(case_sensitive=true)
names|sort(reverse=true)|join(',')
ms|sort(attribute='role')|map(attribute='content')|join(',')
ms|sort(attribute='role,content')|map(attribute='content')|join(',')
[1,'a']|sort
names|unique|list
names|unique(case_sensitive=true)|list
[1,1.0,2,1]|unique|list
l|min
l|max
names|min
names|max
el|max
l|sum
floats|sum
ms|sum(attribute='n')
pairs|sum(attribute=1)
pairs|sum(attribute='1', start=10)
[[1],[2]]|sum(start=[])
d|items|list
ed|items|list
missing|items|list
s|items|list
d|dictsort
d|dictsort(reverse=true)
{'b':2,'A':1,'c':0}|dictsort
{'b':2,'A':1,'c':0}|dictsort(true)
{'b':2,'A':1,'c':0}|dictsort(by='value')
missing|default('x')
missing|default
missing|d('x')
e|default('x')
e|default('x', true)
nil|default('x')
nil|default('x', boolean=true)
missing.foo|default('x')
d.zz|default('x')
neg|abs
f|abs
t|abs
s|abs
'42'|int
' 42 '|int
'+42'|int
'4.7'|int
'x'|int
'x'|int(7)
'ff'|int(0, 16)
'0x1f'|int(base=16)
4.9|int
-4.9|int
nil|int
missing|int
t|int
'1.5'|float
'x'|float
'x'|float(1.5)
n|float
nil|float
2.5|round
3.5|round
2.567|round(2)
2.567|round(1, 'floor')
2.567|round(1, 'ceil')
-2.5|round
n|round
42.7|round|int
1234.5|round(-2)
n|string
f|string|length
nil|string
l|string
s|safe
'<a href="x">\'&</a>'|e
'<b>'|escape
lines|indent
lines|indent(2)
lines|indent(2, true)
lines|indent(2, first=true, blank=true)
lines|indent('> ')
''|indent
'a\n'|indent(2, true)
'<'|safe + '<'
'<' + '<'|safe
'<' + '<'|safe + q
'<'|e + '<' + s
'<'|safe ~ '<' ~ n ~ ['<']
'a' ~ '<'
'<'|e|e
'<'|safe|e
'<'|safe|forceescape
'<b>'|safe|upper|length
('<'|safe)[0] + '<'
' < '|safe|trim + '<'
'<'|safe == '<'
['<'|safe, '<']|join
s|wordcount
u|wordcount
'%s and %d'|format('x', 3)
'%(a)s-%(b)s'|format(a=1, b=2)
'%05.2f|%x|%-5s|%5s|%+d|%%|%r|%o|%e|%g' % (3.14159, 255, 'ab', 'cd', 5, 'q', 8, 12345.678, 0.0001)
'%s' % 'x'
'%s %s' % ('a',)
'%s' % ('a', 'b')
'%d' % 'a'
'%s' % d
'%s' % nil
'%05d' % -42
'%.3s|' % 'abcdef'
'%d' % 3.9
'%5.1f|%-8.3f|' % (2.25, 1.5)
s|truncate(5)
s|truncate(8, true)
'a b c d e f g h'|truncate(9, false, '..', 0)
'abc'|center(9)
[1,2,3,4,5]|batch(2)|list
[1,2,3,4,5]|batch(2, 0)|list
[1,2,3,4,5]|slice(2)|list
[1,2,3,4,5]|slice(3, 'x')|list
l|map('string')|list
names|map('upper')|join(',')
ms|map(attribute='role')|list
ms|map(attribute='n', default=0)|list
ms|map(attribute='n')|list
names|map('replace', 'a', 'X')|list
[1.5, 2.5]|map('round')|list
['a','b']|map('foo')|list
l|select('odd')|list
l|select|list
nil|select|list
nil|selectattr('a')|list
z|map('upper')|list
7|map('upper')|list
nil|map(attribute='x')|list
[0,1,'',none]|select|list
[0,1,'',none]|reject|list
l|reject('odd')|list
l|select('gt', 1)|list
l|select('in', [1,2])|list
l|select('foo')|list
ms|selectattr('role','equalto','user')|list|length
ms|selectattr('n')|list|length
ms|selectattr('n', 'defined')|map(attribute='content')|list
ms|rejectattr('role','in',['user','system'])|map(attribute='role')|list
ms|rejectattr('role','eq','user')|map(attribute='content')|join
ms|groupby('role')|map(attribute=0)|list
ms|groupby('role')|map(attribute='grouper')|list
ms|groupby('role')|map(attribute='list')|map('length')|list
(ms|groupby('role')|first).grouper ~ (ms|groupby('role')|first).list|length
ms|groupby('n', default=0)|map('first')|list
ms|groupby('n')
[1, 2]|map(attribute='list')|list
(1, 2).list is defined
'{"a": [1, 2.5, null, true, "x"], "b": {}}'|fromjson
('{"a": 1}'|fromjson).a + 1
'"x"'|fromjson
' [1]\n'|fromjson
'nope'|fromjson
''|fromjson
5|fromjson
(5|nofilter) if no else 'ok'
'ok' if t else 5|nofilter
(5|nofilter) if t else 'ok'
[5|nofilter] if no
'x' if (5|nofilter) else 'y'
(5 is notest) if no else 'ok'
[5|nofilter, 1 if t else 2]
(1 if t else 2)|nofilter
names|map('length')|sum
names|reject('equalto','bob')|join(', ')
d|attr('b')
-1|abs
(-1)|abs
-n|abs
n|string + 'x'
s|upper|lower|title
s.upper()
s.title()
"they're bill's"|title
"they're bill's".title()
'ab1cd ef'.title()
s.capitalize()
'aB'.swapcase()
s.split()
s.split(' ')
s.split('o')
s.split('o', 1)
'a,b,,c'.split(',')
'a,b,,c'.rsplit(',', 1)
'  a  b c '.split()
'  a  b c '.split(none, 1)
'  a  b c '.rsplit(none, 1)
' a b '.split(' ')
s.split('')
s.split(maxsplit=1)
'<think>x</think>y'.split('</think>')[-1]
lines.splitlines()
lines.splitlines(true)
''.split()
''.split(',')
''.splitlines()
' x '.strip()
'\n x \n'.strip('\n')
'xyxaxyx'.strip('xy')
' x '.lstrip()
' x '.rstrip()
'\u3000\xa0x\u2003'.strip()
'éaé'.strip('é')
s.startswith('he')
s.startswith(('x', 'he'))
s.endswith('ld')
s.endswith('')
s.startswith(1)
s.replace('l', 'L')
s.replace('l', 'L', 1)
s.replace('', '.')
s.replace('o', '')
s.find('o')
s.find('zz')
u.find('Ω')
s.rfind('o')
s.find('o', 5)
s.find('o', 5, 6)
s.index('w')
s.index('zz')
s.count('l')
s.count('')
'aaaa'.count('aa')
', '.join(names)
','.join(l)
','.join('abc')
'{} {}'.format(1, 'a')
'{1} {0} {x}'.format(1, 'a', x=none)
'{:>5}|{:<5}|{:^5}|{:05d}|{:.2f}|{:x}|{!r}'.format('a', 'b', 'c', 42, 3.14159, 255, 'q')
'{{}} {}'.format(1)
'{} {}'.format(1)
'12'.isdigit()
'1a'.isdigit()
''.isdigit()
'ab'.isalpha()
'ab1'.isalnum()
' \t'.isspace()
'AB'.isupper()
'ab'.islower()
'1'.islower()
'abc'.removeprefix('a')
'abc'.removesuffix('c')
'abc'.removesuffix('x')
'7'.zfill(3)
'-7'.zfill(4)
'ab'.ljust(4) ~ '|'
'ab'.rjust(4, '*')
'ab'.center(5, '*')
'abc'.center(6, '*')
'a=b=c'.partition('=')
'a=b=c'.rpartition('=')
'abc'.partition('=')
'abc'.rpartition('=')
s.foo
s.foo()
l.append(4)
d.update({})
d.pop('b')
l.index(1)
l.index(9)
l.count(1)
d.items()|list
d.keys()|list
d.values()|list
d.get('b')
d.get('zz')
d.get('zz', 1)
{'items': 1}.items()|list
{'items': 1}['items']
range(5)|list
range(1, 5)|list
range(5, 0, -2)|list
range(0)|list
range('a')
range(1, 2, 0)
range(1000000)|list|length
range(10)|select('divisibleby', 3)|list
dict(a=1, b=2)
dict(pairs)
dict(d, z=1).z
namespace(a=1).a
namespace(a=1).b is defined
namespace({'a': 2}).a
raise_exception('no')
strftime_now('%d %b %Y')
strftime_now('%c|%x|%X|%D|%R|%F|%T|%u|%f')
strftime_now('%Y-%m-%d %H:%M:%S %A %B %j %p %I %y %% %a')
foo()
n()
s.upper(1)
s.replace('a')
l|join(', ', 'x', 'y')
l|join(zork=1)
1 +
(1
[1
{'a' 1}
{'a': }
'abc
a b
1 2
n.
n |
n is
foo(a=1, 2)
n[
|upper
**n
""".strip("\n").split("\n")

WHITE = [
    "a\n{% if t %}\nb\n{% endif %}\nc\n", "a\n  {% if t %}\n  b\n  {% endif %}\nc", "  {%- if t -%}  b  {%- endif -%}  c",
    "a {%- if t %} b {% endif -%} c", "x\n  {{ n }}  \ny", "x\n  {{- n -}}  \ny", "x {# c #} y", "x\n  {# c #}\ny", "x\n{#- c -#}\ny",
    "a\n{%+ if t %}\nb{% endif %}", "a\n  {%+ if t %}b{% endif %}", "{% if t +%}\nb{% endif %}", "a\n\n\n{% if t %}b{% endif %}\n\n", "\n\n",
    "{{ n }}\n", "{{ n }}\n\n", "x\r\ny\rz\n", "{% raw %}\n {{ x }} {% y %}\n{% endraw %}\nz", "{%- raw -%}\n {{ x }} \n{%- endraw -%}\nz",
    "  {% raw %}a{% endraw %}  \n", "{% if t %}\n\n  x\n\n{% endif %}\n", "{{ n }}{% if t %}\n{% endif %}x", "  {% set x = 1 %}  \n  {{ x }}",
    "{{'a'}} \n {%- if t %} b{% endif %}", "{#\n long\n comment\n#}\nx", "{{ '{{' }} {{ '%}' }} {{ \"}}\" }}", "a { b } { % c %} {", "{ {{ n }} }",
    "{{ {'a': {'b': 1}}['a']['b'] }}", "{{{'a': 1}}}", "x{#- a -#} \n {#- b -#} y", "\t{% if t %}\n\tx\n\t{% endif %}\ny", "{{-n}}", "{{- -n}}",
    "{%if t%}x{%endif%}", "{{n}", "{% if t", "{# x", "{% raw %}x", "{{ }}", "{% %}", "{% if %}{% endif %}", "{% if t %}", "{% endif %}",
    "{% else %}", "{% for x in l %}", "{% foo %}", "{{ 'a\nb' }}", "a\f{% if t %}x{% endif %}", " {% if t %}a{% endif %} {% if t %}b{% endif %} ",
]

STATEMENTS = [
    "{% if n > 3 %}a{% elif n > 2 %}b{% else %}c{% endif %}", "{% if no %}a{% elif t %}b{% else %}c{% endif %}", "{% if no %}a{% else %}c{% endif %}",
    "{% if no: %}a{% else: %}c{% endif %}", "{% if 1, 2 %}a{% endif %}", "{% if no %}{{ x|zork }}{% endif %}ok", "{% if t %}{{ x|zork }}{% endif %}ok",
    "{% for x in l %}{{ x }},{% endfor %}", "{% for x in el %}{{ x }}{% else %}none{% endfor %}", "{% for x in l if x > 1 %}{{ loop.index }}:{{ x }}{{ ' last' if loop.last }} {% endfor %}",
    "{% for x in l if x > 7 %}{{ x }}{% else %}none{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}",
    "{% for k, v in d|items %}{{ loop.first }}{{ k }}{% endfor %}", "{% for a, b in pairs %}{{ a }}{{ b }}{% endfor %}", "{% for a, b in l %}{% endfor %}", "{% for (a, b) in pairs %}{{ a }}{% endfor %}",
    "{% for c in u %}[{{ c }}]{% endfor %}", "{% for x in n %}{% endfor %}", "{% for x in missing %}a{% else %}b{% endfor %}", "{% for x in nil %}{% endfor %}",
    "{% for x in l %}{{ loop.index }} {{ loop.index0 }} {{ loop.revindex }} {{ loop.revindex0 }} {{ loop.first }} {{ loop.last }} {{ loop.length }} {{ loop.depth }} {{ loop.depth0 }};{% endfor %}",
    "{% for x in l %}{{ loop.previtem }}<{{ x }}<{{ loop.nextitem }};{% endfor %}", "{% for x in l %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}",
    "{% for x in l %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in [1,1,2] %}{{ loop.changed(x) }}{% endfor %}", "{% for x in l %}{% for y in l %}{{ loop.index }}{{ x }}{{ y }} {% endfor %}{{ loop.index }}{% endfor %}",
    "{% for x in l %}{% set outer = loop %}{% for y in l %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}", "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% else %}no{% endfor %}", "{% for x in l %}{% for y in l %}{% if y == 1 %}{% break %}{% endif %}{{ y }}{% endfor %}{{ x }};{% endfor %}",
    "{% break %}", "{% for x in range(3) recursive %}{{ x }}{% endfor %}", "{% for i in t3 recursive %}{{ i.v }}[{{ loop(i.c) }}]{{ loop.depth }}{% endfor %}",
    "{% for x in l %}{{ loop(l) }}{% endfor %}", "{% set x = 1 %}{% for y in l %}{% set x = x + y %}{{ x }} {% endfor %}{{ x }}", "{% set x = 1 %}{% if t %}{% set x = 2 %}{% endif %}{{ x }}",
    "{% for y in l %}{% set q2 = y %}{% endfor %}{{ q2 is defined }}", "{% set ns = namespace(x=0) %}{% for y in l %}{% set ns.x = ns.x + y %}{% endfor %}{{ ns.x }}", "{% set ns = namespace() %}{% set ns.a = 1 %}{{ ns.a }}{{ ns.b }}",
    "{% set d.x = 1 %}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a, b = pairs %}{{ a }}{{ b }}", "{% set a, b = 1 %}", "{% set x %}a{{ n }}b{% endset %}{{ x }}|{{ x|length }}", "{% set x | upper %}a{{ s }}b{% endset %}{{ x }}",
    "{% set x %}{% set y = 1 %}{% endset %}{{ y is defined }}", "{% set loop = 1 %}{{ loop }}", "{% for l in l %}{{ l }}{% endfor %}{{ l }}", "{% set l = l[1:] %}{{ l }}", "{% set (a, b) = (1, 2) %}{{ a }}",
    "{% macro m(a, b=2) %}{{ a }}-{{ b }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(b=5, a=4) }} {{ m() }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(z=2) }}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "{% macro m(a) %}{{ a }}{{ varargs }}{% endmacro %}{{ m(1, 2, 3) }}", "{% macro m(x) %}{% if x %}{{ x[0] }}{{ m(x[1:]) }}{% endif %}{% endmacro %}{{ m(l) }}",
    "{% set g = 1 %}{% macro m() %}{{ g }}{% endmacro %}{% set g = 2 %}{{ m() }}", "{% macro m() %}{{ g2 }}{% endmacro %}{% set g2 = 2 %}{{ m() }}", "{% macro m() %}{% set q3 = 1 %}{% endmacro %}{{ m() }}{{ q3 is defined }}",
    "{% macro m() %}x{% endmacro %}{{ m()|upper }}{{ m() + 'y' }}{{ m()|length }}", "{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}in{{ n }}{% endcall %}", "{% macro m() %}{% for x in l %}{{ caller(x) }},{% endfor %}{% endmacro %}{% call(y) m() %}<{{ y }}>{% endcall %}",
    "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}", "{% macro m(a=n+1) %}{{ a }}{% endmacro %}{{ m() }}", "{% macro a() %}1{{ b() }}{% endmacro %}{% macro b() %}2{% endmacro %}{{ a() }}", "{{ m2() }}{% macro m2() %}x{% endmacro %}",
    "{% for x in l %}{% macro m3() %}{{ x }}{% endmacro %}{{ m3() }}{% endfor %}", "{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1, 2]) }}{{ m(**{'a': 3, 'b': 4}) }}", "{% filter upper %}a{{ s }}b{% endfilter %}",
    "{% filter replace('a', 'b')|upper %}aXa{% endfilter %}", "{% filter indent(2) %}a\nb\n{% endfilter %}", "{% with %}{% set w = 1 %}{{ w }}{% endwith %}{{ w is defined }}", "{% with a=1, b=n %}{{ a }}{{ b }}{% endwith %}",
    "{% with a=1 %}{% with a=2, b=a %}{{ a }}{{ b }}{% endwith %}{% endwith %}", "{% generation %}x{{ n }}{% endgeneration %}y", "{% generation %}{% set v = 1 %}{% endgeneration %}{{ v is defined }}", "{% set v = 1 %}{% generation %}{{ v }}{% endgeneration %}",
    "{% set x = [] %}{% set x = x + [1] %}{{ x }}", "{% set x = 'a' ~ 'b' if t else 'c' %}{{ x }}", "{{ 1, 2 }}", "{{ (1 if t else 2) + 1 }}", "{{ l|sort|first }}{{ (l|sort)[0] }}", "{{ s.split()[0].upper()[0] }}", "{{ ms[0]['content']|trim }}",
    "{%- for m in ms %}{{- '<|' + m.role + '|>' + m['content']|trim + '\\n' }}{%- endfor %}", "{%- for m in ms %}{%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate') }}{%- endif %}{%- endfor %}",
    "{%- for m in ms if m.role != 'system' %}{{ m.role }}{{ loop.index0 }}{%- endfor %}", "{% set sys = ms|selectattr('role', 'equalto', 'system')|list %}{{ sys[0].content if sys else 'none' }}",
    "{% if ms[0].role == 'system' %}{% set rest = ms[1:] %}{% endif %}{{ rest|length }}{{ rest[0].content }}", "{% if 'n' in ms[2] and ms[2].n is not none %}{{ ms[2].n }}{% endif %}", "{{ ms[0] == ms[0] }}{{ ms[0] == ms[1] }}",
    "{% set last = namespace(i=-1) %}{% for m in ms[::-1] %}{% set index = (ms|length - 1) - loop.index0 %}{% if last.i < 0 and m.role == 'user' %}{% set last.i = index %}{% endif %}{% endfor %}{{ last.i }}",
    "{% if not (tools is defined and tools) %}no tools{% endif %}", "{% if not tools is defined %}{% set tools = none %}{% endif %}{{ tools is none }}", "{{ bos_token }}x", "{%- set x = d.c if d.c is defined and d.c else '' -%}{{ x }}",
    "{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}", "{% do l %}", "{{ ''.__class__ }}", "{{ ''['__class__'] }}", "{{ ().__class__.__bases__ }}", "{% set x = 1 %}{% set x = x.__class__ %}{{ x }}",
    "{% set _ = l.append(1) %}", "{{ 'x' if missing else 'y' }}", "{{ missing or 'y' }}", "{% if missing %}a{% else %}b{% endif %}", "{{ not missing }}", "{% for a in ['x'] %}{{ a }}{% endfor %}{{ a is defined }}",
]

T3 = [{"v": 1, "c": [{"v": 2, "c": []}, {"v": 3, "c": [{"v": 4, "c": []}]}]}]

CASES = [("{{ " + e + " }}", VALUES) for e in EXPRESSIONS] + [(t, VALUES) for t in WHITE] + [(t, dict(VALUES, t3=T3)) for t in STATEMENTS]

# Templates that the reference renders and Baton refuses, with words of the refusal.
REFUSED = [
    ("{{ big + big }}", VALUES, "does not fit into 64 bits"), ("{{ big * 4 }}", VALUES, "does not fit into 64 bits"),
    ("{{ 9223372036854775808 }}", {}, "does not fit into 64 bits"), ("{{ huge + 1 }}", VALUES, "'+' of a int"),
    ("{{ 'x' * 100000000 }}", {}, "a text of more than"), ("{{ '{:,}'.format(1) }}", {}, "a format of type ','"),
    ("{% set r = range(3000)|list %}{% for i in r %}{% for j in r %}{% endfor %}{% endfor %}", {}, "too many steps"),
    ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", {}, "nested deeper"), ("a\n\n{{ x|foo }}", {}, 'line 3: unknown filter "foo"'),
    ("{% set a = namespace() %}{% set a.x = [a] %}{{ a }}", {}, "nested deeper"), ("\n{{ x is foo }}", {}, 'line 2: unknown test "foo"'),
    ("{% if a %}\n{{ 1 + }}{% endif %}", {}, "line 2: expected an expression, found '}}'"), ("{% for x in y %}", {}, "{% endfor %} is missing"),
    ("{{ a.b.c }}", {"a": {}}, "'b' is undefined"), ("{% include 'x' %}", {}, "unknown statement 'include'"), ("{{ l.append(1) }}", VALUES, "in place"),
    ("{{ " + "(" * 200 + "1" + ")" * 200 + " }}", {}, "nested deeper"), ("{{ " + "[" * 300 + " }}", {}, "nest too deep"),
    ("{{ x" + "|trim" * 1000 + " }}", {"x": "a"}, "nested deeper"), ("{% if 1 %}" * 150 + "{% endif %}" * 150, {}, "nested deeper"),
    ("{% set b = ' ' * 1000000 ~ '1' %}{% for i in range(2000) %}{% if b|fromjson == 77 %}x{% endif %}{% endfor %}", {}, "too many steps"),
    ("{% for i in range(30) %}{% set x = 'ab' * 1000000 %}{% endfor %}", {}, "too many steps"), ("{{ '%5000d' % 1 }}", {}, "wider than"),
    ("{% set ns = namespace(l=['x' * 1000]) %}{% for i in range(30) %}{% set ns.l = ns.l + ns.l %}{% endfor %}", {}, "memory"), ("{% macro m() %}{{ 'x' * 3000000 }}{{ m() }}{% endmacro %}{{ m() }}", {}, "a text of more than"), ("{{ (1,).append(1) }}", {}, "in place"), ("{{ d.a.append(1) }}", VALUES, "in place"),
    ("{{ [].pop() }}", {}, "no such element"), ("{{ [1].pop('a') }}", {}, "is no index"), ("{{ (l|list).append(1) }}", VALUES, "in place"),
    ("{% set x = [1] %}{% for i in x %}{% set _ = x.append(i) %}{% endfor %}", {}, "memory"),
    ("{% set x = [] %}{% set _ = x.append(x) %}{{ x }}", {}, "nested deeper"), ("{% set x = [] %}{% set _ = x.append(x) %}{{ x|tojson }}", {}, "nested deeper"),
    ("{% set x = [] %}{% set y = [] %}{% set _ = x.append(y) %}{% set _ = y.append(x) %}{{ x == y }}", {}, "nested deeper"),
    ("{% set x = [1] %}{% for i in range(40) %}{% set _ = x.extend(x) %}{% endfor %}", {}, "memory"),
    ("{{ raise_exception('Not so.') }}", {}, "line 1: Not so."),
]

# The reference's sandbox refuses these, but some models' templates need them: a template may change lists that it wrote
# itself.
OURS = [
    ("{% set x = [] %}{% set _ = x.append(1) %}{% set _ = x.append('a') %}{{ x }}", "[1, 'a']"),
    ("{% set ns = namespace(q=[]) %}{% for i in range(3) %}{% set _ = ns.q.append(i) %}{% endfor %}{{ ns.q|join(',') }}", "0,1,2"),
    ("{% set x = [1] %}{% set y = x %}{% set _ = y.append(2) %}{{ x }}", "[1, 2]"),
    ("{% set x = [1] %}{% set y = x.copy() %}{% set z = x|list %}{% set _ = y.append(2) %}{{ x }}{{ y }}{{ z }}", "[1][1, 2][1]"),
    ("{% set x = [1, 2] %}{% set _ = x.extend(x) %}{% set _ = x.extend((5,)) %}{{ x }}", "[1, 2, 1, 2, 5]"),
    ("{% set x = [1, 2] %}{% set _ = x.insert(0, 'a') %}{% set _ = x.insert(-1, 'b') %}{% set _ = x.insert(99, 'c') %}{{ x }}",
     "['a', 1, 'b', 2, 'c']"),
    ("{% set x = [1, 2, 3] %}{{ x.pop() }}{{ x.pop(0) }}{{ x }}{{ [4, 5].pop(-2) }}", "31[2]4"),
    ("{% set x = [] %}{% set _ = x.append(x) %}{{ x == x }}", "True"),
]
