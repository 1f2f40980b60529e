# cmake -D BERTH=PROGRAM -D IN=TEMPLATE -D OUT=PAGE -P man.cmake: writes the man page PAGE: the template with the commands that the
# program prints with `help --man`.
execute_process(COMMAND ${BERTH} help --man OUTPUT_VARIABLE commands RESULT_VARIABLE code)
if(NOT code EQUAL 0)
    message(FATAL_ERROR "${BERTH} help --man: ${code}")
endif()
file(READ ${IN} page)
string(REPLACE "@COMMANDS@" "${commands}" page "${page}")
file(WRITE ${OUT} "${page}")
