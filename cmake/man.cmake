# man.cmake: the man page OUT: the template IN with the commands as the program BERTH itself writes them.
execute_process(COMMAND ${BERTH} help --man OUTPUT_VARIABLE commands RESULT_VARIABLE code)
if(NOT code EQUAL 0)
    message(FATAL_ERROR "${BERTH} help --man: ${code}")
endif()
file(READ ${IN} page)
string(REPLACE "@COMMANDS@" "${commands}" page "${page}")
file(WRITE ${OUT} "${page}")
